"""Checkpoints of train, keyed by the hash of everything that determines the result.

They are in the untracked .codline/ directory, because DVC deletes a stage's outputs before it runs. A file is a
safetensors file followed by its SHA-256: a flipped bit in weights or random states would go unnoticed otherwise.
"""

import copy
import hashlib
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from codline.core.files import atomic_write, file_sha256
from codline.learning.fit import TrainingState
from codline.learning.model_file import serialize_tensors
from codline.runtime import code_files, stage_snapshot, state_directory

# The code that train may import, some of it only while it trains.
CODE = tuple(f"codline/{name}/" for name in ("core", "runtime", "data", "models", "objectives", "learning"))
STAGE = ("stages/train.py", "stages/runner.py")
INTERVAL_SECONDS = 30.0  # between two; one of ResNet-18 has 134 MB and takes 0.7 s
DIGEST_BYTES = hashlib.sha256().digest_size


class Checkpoint:
    """The last two states that were written of one training.

    pool.parquet, one of the inputs, has the hash of every image, so the images themselves need not be hashed.
    """

    def __init__(self, inputs: list[Path], **settings: Any) -> None:
        identity = {
            "inputs": [file_sha256(path) for path in inputs],
            "settings": settings,
            "code": code_digest(),
            "torch": torch.__version__,
        }
        stage_snapshot.refuse_changes()  # otherwise the key could belong to files other than those that were read
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        directory = state_directory.checkpoint_directory(key)
        self.path, self.previous_path = directory / "last.checkpoint", directory / "previous.checkpoint"
        self.written_at = time.monotonic()  # or the start of the training

    def of_member(self, number: int) -> "Checkpoint":
        """That of a member of the committee, which is discarded together with this one."""
        member = copy.copy(self)
        member.path = self.path.with_name(f"member-{number}-last.checkpoint")
        member.previous_path = self.path.with_name(f"member-{number}-previous.checkpoint")
        member.written_at = time.monotonic()
        return member

    def write_if_due(self, state: TrainingState, epochs: int) -> None:
        """Called after every epoch: write the last one, and others if the last write is long ago."""
        stage_snapshot.refuse_changed_inputs()  # images are read in every epoch
        if state.epoch == epochs or time.monotonic() - self.written_at >= INTERVAL_SECONDS:
            self.write(state)

    def write(self, state: TrainingState) -> None:
        data = serialize_tensors(state.tensors, {"epoch": state.epoch, "curve": state.curve})
        if self.path.exists():
            self.path.replace(self.previous_path)
        # Not durable: fsync takes longer than a small epoch, and a file that a power failure truncates is discarded.
        with atomic_write(self.path, durable=False) as part, part.open("wb") as file:
            file.write(data)
            file.write(hashlib.sha256(data).digest())
        self.written_at = time.monotonic()

    def read(self) -> TrainingState | None:
        """The last state that is whole. Discards damaged files and says so."""
        discarded = []
        state = None
        for path in (self.path, self.previous_path):
            if state is None and path.exists() and (state := read_state(path)) is None:
                discarded.append(path)
                path.unlink()
        if discarded:
            resumed = f"goes on after epoch {state.epoch}" if state else "starts from the beginning"
            found = " and ".join(map(str, discarded))
            logging.getLogger("codline").warning("%s: damaged, so it was discarded; training %s", found, resumed)
        return state

    def discard(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


def read_state(path: Path) -> TrainingState | None:
    """None for a file that is damaged or truncated."""
    content = memoryview(path.read_bytes())
    data, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        return None
    header = json.loads(bytes(data[8 : 8 + int.from_bytes(data[:8], "little")]))
    meta = json.loads(header["__metadata__"]["codline"])
    return TrainingState(meta["epoch"], safetensors.torch.load(bytes(data)), meta["curve"])


def code_digest() -> str:
    """Of the code that train may import, as it was when this process started."""
    at_start = sorted(code_files.code_at_start().items())
    digests = [digest for path, digest in at_start if (path.startswith(CODE) and path.endswith(".py")) or path in STAGE]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
