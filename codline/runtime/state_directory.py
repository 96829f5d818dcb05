"""The untracked .codline/ directory: checkpoints and notes. Deleting it costs time, never results."""

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

from codline.core.files import write_json

CHECKSUM = "checksum"  # key in a note: of all the others
KEPT_CHECKPOINTS = 3  # of the most recent trainings
KEPT_PASSES = 8  # of a stage, which may make several, and may have been killed with other parameters


def state_root() -> Path:
    return Path(os.environ.get("CODLINE_STATE_DIRECTORY", ".codline"))


def checkpoint_directory(key: str) -> Path:
    """The directory of the checkpoints of the training with this key. Deletes those of the oldest trainings."""
    directory = state_root() / "checkpoints"
    others = sorted((p for p in directory.glob("*") if p.name != key), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in others[KEPT_CHECKPOINTS - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return directory / key


def pass_path(stage: str, key: str) -> Path:
    """The file with what a running stage has computed of the pass with this key. Deletes those of the oldest passes."""
    directory = state_root() / "passes" / stage
    directory.mkdir(parents=True, exist_ok=True)
    others = sorted((p for p in directory.iterdir() if p.name != key), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in others[KEPT_PASSES - 1 :]:
        old.unlink(missing_ok=True)
    return directory / key


def delete_passes(stage: str) -> None:
    shutil.rmtree(state_root() / "passes" / stage, ignore_errors=True)


def note_path(kind: str, name: str) -> Path:
    """The JSON file of a note. These kinds exist, with what `name` is:

    progress    a running stage: unit, done, total, when it started; train adds its training curve
    seconds     a stage that has succeeded: when its last run started, how long it took, and in which campaign
    error       a stage that has failed: its error sentence and exit code
    warnings    a stage: the sentences of its last run, if any
    snapshot    a stage: the parameters, inputs and code of its last run
    verified    `inputs`: files that were compared with dvc.lock in this campaign
    unreadable  `prepare`: files of the dataset that cannot be read, with reasons
    flow        a Prefect flow: its run id, its process id and that of the `codline serve` that started it, or 0
    logged      `campaign`, in the worktree of a study's point: MLflow has it
    runs        a cycle or `campaign`: its MLflow experiment and run, and the campaign's key
    """
    return state_root() / kind / f"{name}.json"


def write_note(kind: str, name: str, value: dict[str, Any], durable: bool = False) -> None:
    """Replace a note atomically: other processes may read it at any time."""
    write_json(note_path(kind, name), value | {CHECKSUM: checksum(value)}, durable)


def delete_note(kind: str, name: str) -> None:
    note_path(kind, name).unlink(missing_ok=True)


def read_note(kind: str, name: str) -> dict[str, Any] | None:
    """The note, or None if it is missing or damaged."""
    try:
        value: dict[str, Any] = json.loads(note_path(kind, name).read_text(encoding="utf-8"))
        return value if value.pop(CHECKSUM) == checksum(value) else None
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None


def checksum(value: dict[str, Any]) -> int:
    """A flipped bit may leave valid JSON with another key or number in it."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
