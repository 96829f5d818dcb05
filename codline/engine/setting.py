"""The engine that the user chose: an environment variable, because params.yaml has only what decides results."""

import os
import re

from codline.core.errors import UserError

ENGINE = "CODLINE_ENGINE"
MAX_WORKERS = 256
SETTING = re.compile(r"local(?::([1-9]\d{0,2}))?")


def choose_engine(setting: str | None) -> None:
    """For commands: make this the engine of all stages that this process starts. None: what the environment says."""
    if setting is not None:
        os.environ[ENGINE] = setting
    worker_count()


def worker_count() -> int:
    """How many processes run networks in a pass; 1: the stage's own."""
    setting = os.environ.get(ENGINE) or "local"
    match = SETTING.fullmatch(setting)
    count = int(match[1] or 1) if match else 0
    if not 1 <= count <= MAX_WORKERS:
        expected = f"expected local (one process) or local:N (N worker processes, at most {MAX_WORKERS})"
        raise UserError(f"--engine or {ENGINE}: found {setting!r}, {expected}")
    return count
