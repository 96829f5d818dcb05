"""The untracked corner: epoch checkpoints, live progress, timings, the last error. Deleting it costs time, never results."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from codline.core.files import write_json

KEPT = 3  # checkpoints of the last trainings, so that one can still be resumed after its neighbours ran


def root() -> Path:
    return Path(os.environ.get("CODLINE_SCRATCH", ".codline"))


def checkpoint(key: str) -> Path:
    """Where the training with this key keeps its last epoch; older trainings' are dropped."""
    folder = root() / "checkpoints"
    others = sorted((p for p in folder.glob("*") if p.name != key), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in others[KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return folder / key / "last.safetensors"


def note(kind: str, stage: str, value: dict[str, Any] | None, durable: bool = False) -> None:
    """Leave a note that others may read at any instant: kind is `progress`, `seconds` or `error`."""
    path = root() / kind / f"{stage}.json"
    if value is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, value, durable)


def read_note(kind: str, stage: str) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads((root() / kind / f"{stage}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value
