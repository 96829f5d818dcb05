"""What scoring works with: images, ids to score, stored outputs, true labels, random streams."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from codline.acquisition.learner_context import LearnerContext
from codline.data import masks, random_streams, tables
from codline.data.array_store import ArrayStore
from codline.data.labels import lookup_labels
from codline.data.splits import resolve_amount
from codline.learning.image_reader import ImageReader
from codline.runtime import state_directory
from codline.scoring.networks import ScoringNetworks

TrueLabels = Callable[[np.ndarray], np.ndarray]  # ids -> class numbers or masks


@dataclass(frozen=True)
class ScoringContext:
    networks: ScoringNetworks
    reader: ImageReader
    scored_ids: np.ndarray  # of the images that get a score, ascending
    stored_outputs: ArrayStore | None  # of the previous cycle, unless its model is run again
    true_labels: TrueLabels | None
    seed: int
    cycle: str

    def generator(self, name: str) -> np.random.Generator:
        return random_streams.generator(self.seed, name, self.cycle)

    def torch_generator(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.stream_seed(name))

    def stream_seed(self, name: str) -> int:
        return random_streams.derive_seed(self.seed, name, self.cycle)

    def learner_context(self) -> LearnerContext:
        stage = f"score@{self.cycle}"

        def advance(done: int, total: int) -> None:
            if done == total or done % max(1, total // 100) == 0:
                state_directory.write_note("progress", stage, {"unit": "steps", "done": done, "total": total})

        return LearnerContext(self.reader.tensors, self.reader.normalize.device, self.stream_seed("strategy"), advance)


def draw_subset(ids: np.ndarray, size: float | None, rng: np.random.Generator) -> np.ndarray:
    """A random subset of the ids, ascending: a number or a share of them, or all if `size` is None."""
    if size is None:
        return ids
    return np.sort(rng.choice(ids, min(resolve_amount(size, len(ids)), len(ids)), replace=False))


def load_true_labels(path: Path, ids: np.ndarray, subsample: bool, classes: int) -> TrueLabels:
    """Look up the true labels of these ids; masks have the pixels that the outputs have."""
    cells = lookup_labels(ids, path, tables.ORACLE, classes)
    decode = masks.decode_subsampled_targets if subsample else masks.decode_targets
    return lambda chunk_ids: decode(cells[np.searchsorted(ids, chunk_ids)], classes)
