"""The engine that the user chose: an environment variable, because params.yaml has only what decides results."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec

from codline.core.errors import UserError

ENGINE = "CODLINE_ENGINE"
MAX_WORKERS = 256
LOCAL = re.compile(r"local(?::(?P<workers>\d{1,4}))?")
RAY = re.compile(
    r"ray(?::(?P<workers>\d{1,4}))?(?:@(?P<address>[^@,\s]+:\d{1,5}))?(?:,cpus=(?P<cpus>\d{1,4}))?(?:,gpus=(?P<gpus>\d{1,4}))?",
    re.ASCII,
)
EXPECTED = (
    f"expected local, local:N with N worker processes, or ray:N[@HOST:PORT][,cpus=C][,gpus=G] with N workers "
    f"of a Ray cluster (at most {MAX_WORKERS})"
)


@dataclass(frozen=True)
class EngineSetting:
    """Where passes over images run; see docs/engines.md."""

    workers: int = 1
    is_ray: bool = False
    address: str | None = None  # HOST:PORT of a running Ray cluster; None: the stage starts one on this machine
    cpus: int = 1  # that Ray reserves for each worker
    gpus: int = 0


def choose_engine(setting: str | None) -> None:
    """For commands: make this the engine of all stages that this process starts. None: what the environment says."""
    if setting is not None:
        os.environ[ENGINE] = setting
    if engine_setting().is_ray:
        refuse_missing_ray()


def refuse_missing_ray() -> None:
    if find_spec("ray") is None:
        raise UserError("--engine ray: Ray is not installed; expected the extra `ray`: pip install -e '.[ray]'")


def engine_setting() -> EngineSetting:
    text = os.environ.get(ENGINE) or "local"
    match = LOCAL.fullmatch(text) or RAY.fullmatch(text)
    fields = match.groupdict() if match else {"workers": "0"}
    numbers = {name: int(value) for name, value in fields.items() if value and name != "address"}
    setting = EngineSetting(is_ray=text.startswith("ray"), address=fields.get("address"), **numbers)
    if not 1 <= setting.workers <= MAX_WORKERS or setting.cpus < 1:
        raise UserError(f"--engine or {ENGINE}: found {text!r}, {EXPECTED}")
    return setting
