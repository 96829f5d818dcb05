"""Epoch checkpoints: kept outside DVC's outputs (which are deleted before a stage runs), under the hash of all that determines the training."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from codline.core.errors import DataError
from codline.core.files import digest
from codline.learning.fit import Progress
from codline.learning.model_file import read_tensors, write_tensors
from codline.runtime import state_directory


class Checkpoint:
    """The last epoch of one training. pool.parquet holds every image's hash, so it stands for the images."""

    def __init__(self, inputs: list[Path], **settings: Any) -> None:
        facts = {
            "inputs": [digest(path) for path in inputs],
            "settings": settings,
            "code": code(),
            "torch": torch.__version__,
        }
        self.path = state_directory.checkpoint(
            hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
        )

    def write(self, progress: Progress) -> None:
        write_tensors(self.path, progress.tensors, {"epoch": progress.epoch, "curve": progress.curve})

    def read(self) -> Progress | None:
        if not self.path.exists():
            return None
        try:
            tensors, meta = read_tensors(self.path)
        except DataError:  # left by a failing disk: training again costs time, resuming from it could cost exactness
            return None
        return Progress(meta["epoch"], tensors, meta["curve"])

    def discard(self) -> None:
        """Training is over: run again, it really trains again."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def code() -> str:
    """Hash of every module of ours that this process has loaded, the stage itself among them."""
    root = Path(__file__).parents[1]
    rooms = (root / "codline", root / "stages")
    loaded = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    files = sorted(path for path in loaded if path.parent in rooms or path.parent.parent in rooms)
    return hashlib.sha256("".join(digest(path) for path in files).encode()).hexdigest()
