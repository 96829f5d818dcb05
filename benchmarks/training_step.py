"""fit() and a bare torch loop with the same arithmetic and images: python -m benchmarks.training_step"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from benchmarks.harness import (
    Clock,
    Laps,
    argument_parser,
    chosen_clock,
    compare_interleaved,
    counted_rounds,
    interleave,
    report,
)
from codline.core.params import Compute
from codline.data import masks
from codline.learning import task_loss
from codline.learning.augmentation import Augmentation
from codline.learning.compute import configure
from codline.learning.fit import TrainingData, fit
from codline.learning.inference import Normalize
from codline.learning.recipe import Recipe
from codline.models.base import ModelSpec
from codline.models.drn_d_22 import DrnD22
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet
from codline.objectives.base import TrainingContext
from codline.objectives.ema import EmaObjective

CLASSES, LEARNING_RATE = 10, 0.01
SECONDS_PER_CASE = 20.0  # short steps need many rounds to resolve one percent


@dataclass(frozen=True)
class TrainingCase:
    model: ModelSpec
    shape: tuple[int, int, int]
    batch_size: int
    steps: int
    epochs: int = 1
    semi_supervised: bool = False

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=LEARNING_RATE,
            momentum=0.9,
            weight_decay=5e-4,
            decay_at=1.0,
            decay_by=0.1,
            start_from="previous",
            augment=Augmentation(crop=2, flip=True),
            objectives=[EmaObjective()] if self.semi_supervised else [],
        )


CASES = {
    "small_cnn, 28x28": TrainingCase(SmallCnn(width=16), (1, 28, 28), batch_size=64, steps=12),
    "resnet18, 32x32": TrainingCase(ResNet18(), (3, 32, 32), batch_size=16, steps=4),
    # Two epochs: only the first decodes masks, as in a real training of many epochs.
    "small_unet, 64x96": TrainingCase(SmallUnet(width=8), (3, 64, 96), batch_size=8, steps=8, epochs=2),
    "drn_d_22, 64x64": TrainingCase(DrnD22(), (3, 64, 64), batch_size=4, steps=8),
}


class Comparison:
    """Both contenders of one case, on the same random images: the first `count` are labeled, as many others are not."""

    def __init__(self, case: TrainingCase, clock: Clock) -> None:
        self.case, self.recipe, self.clock = case, case.recipe, clock
        self.count, (channels, height, width) = case.batch_size * case.steps, case.shape
        rng = np.random.default_rng(0)
        self.pixels: np.ndarray = rng.integers(0, 256, (2 * self.count, *case.shape), np.uint8)
        self.is_dense = case.model.task == "segmentation"
        label_shape = (self.count, height // 8, width // 8) if self.is_dense else (self.count,)
        self.labels = rng.integers(0, CLASSES, label_shape, np.uint8)
        self.stored_labels = self.labels.astype(np.int32)
        if self.is_dense:
            self.labels = self.labels.repeat(8, axis=1).repeat(8, axis=2)
            self.stored_labels = np.array([masks.encode_mask(mask) for mask in self.labels], object)
        self.normalize = Normalize([0.5] * channels, [0.25] * channels, torch.device("cpu"))
        self.generator = torch.Generator().manual_seed(0)
        self.fit_network, self.bare_network = (case.model.seeded_network(CLASSES, case.shape, 0) for _ in range(2))

    def measure(self) -> dict[str, Laps]:
        fit_laps, bare_laps = interleave(self.run_fit, self.run_bare_loop(), self.clock)
        return {"bare torch loop": bare_laps, "fit()": fit_laps}

    def run_fit(self, lap: Callable[[], None]) -> None:
        def take(ids: np.ndarray) -> np.ndarray:
            if ids[0] < self.count and len(ids) == self.case.batch_size:  # a step begins with reading labeled images
                lap()
            images: np.ndarray = self.pixels[ids]
            return images

        data = TrainingData(
            take=take,
            labeled_ids=np.arange(self.count),
            labels=self.stored_labels,
            unlabeled_ids=np.arange(self.count, 2 * self.count),
            normalize=self.normalize,
        )
        fit(self.fit_network, data, self.recipe, TrainingContext(self.case.shape), seed=0)

    def labeled_batch(self, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, labels = torch.from_numpy(self.pixels[rows]), torch.from_numpy(self.labels[rows])
        if self.is_dense:
            images, labels = self.recipe.augment.with_masks(pixels, labels, self.generator)
        else:
            images = self.recipe.augment(pixels, self.generator)
        return self.normalize(images), labels.long()

    def unlabeled_batch(self, rows: slice) -> torch.Tensor:
        pixels = torch.from_numpy(self.pixels[self.count :][rows])
        return self.normalize(self.recipe.augment(pixels, self.generator))

    def run_bare_loop(self) -> Iterator[None]:
        """Augments, normalizes and keeps running sums of loss and accuracy as fit() does. Yields after every step."""
        network, batch_size = self.bare_network.train(), self.case.batch_size
        optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, 0.9, weight_decay=5e-4)
        teacher = None
        if self.case.semi_supervised:
            teacher = torch.optim.swa_utils.AveragedModel(
                network, avg_fn=lambda mean, now, _: torch.lerp(now, mean, 0.999)
            )
        total, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for start in [*range(0, self.count, batch_size)] * self.case.epochs:
            rows = slice(start, start + batch_size)
            images, targets = self.labeled_batch(rows)
            logits = network(images)
            loss = task_loss.mean_loss(logits, targets)
            if teacher is not None:
                unlabeled = self.unlabeled_batch(rows)
                with torch.no_grad():
                    theirs = teacher(unlabeled).softmax(1)
                squares = functional.mse_loss(network(unlabeled).softmax(1), theirs, reduction="none")
                loss = loss + 0.05 * squares.sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if teacher is not None:
                teacher.update_parameters(network)
            total += loss.detach() * len(images)
            correct += (logits.argmax(1) == targets).sum()
            yield


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=3)
    parser.add_argument("--enough", type=float, default=SECONDS_PER_CASE, help="minimum seconds per case")
    options = parser.parse_args(words)
    configure(Compute(device="cpu"))
    comparisons = {
        f"{name}, {'semi-supervised' if semi_supervised else 'supervised'}": Comparison(
            replace(case, semi_supervised=semi_supervised), chosen_clock(options)
        ).measure
        for name, case in list(CASES.items())[: 1 if options.quick else None]
        for semi_supervised in (False, True)
        if not (semi_supervised and name.startswith("drn"))
    }
    measurements = compare_interleaved(comparisons, counted_rounds(options), min_seconds=options.enough)
    report("Training: CPU seconds of some steps", measurements, options.json)


if __name__ == "__main__":
    main()
