"""Epoch checkpoints of train, keyed by the hash of everything that determines the result.

They are in the untracked .codline/ directory, because DVC deletes a stage's outputs before it runs.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from codline.core.errors import DataError
from codline.core.files import file_sha256
from codline.learning.fit import TrainingState
from codline.learning.model_file import read_tensors, write_tensors
from codline.runtime import state_directory

ROOT = Path(__file__).parents[2]


class Checkpoint:
    """The state of one training after its last completed epoch.

    pool.parquet, one of the inputs, has the hash of every image, so the images themselves need not be hashed.
    """

    def __init__(self, inputs: list[Path], **settings: Any) -> None:
        identity = {
            "inputs": [file_sha256(path) for path in inputs],
            "settings": settings,
            "code": code_digest(),
            "torch": torch.__version__,
        }
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        self.path = state_directory.checkpoint_path(key)

    def write(self, state: TrainingState) -> None:
        write_tensors(self.path, state.tensors, {"epoch": state.epoch, "curve": state.curve})

    def read(self) -> TrainingState | None:
        if not self.path.exists():
            return None
        try:
            tensors, meta = read_tensors(self.path)
        except DataError:  # a corrupt file, for example after a disk failure: train again
            return None
        return TrainingState(meta["epoch"], tensors, meta["curve"])

    def discard(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


def code_files() -> list[Path]:
    """The modules of codline and stages that this process has imported."""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    packages = (f"{ROOT}/codline/", f"{ROOT}/stages/")
    return [Path(file) for file in sorted(files) if file.startswith(packages)]


def code_digest() -> str:
    return hashlib.sha256("".join(file_sha256(path) for path in code_files()).encode()).hexdigest()
