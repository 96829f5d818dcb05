"""Training in processes that share every batch, compared with one: python -m benchmarks.training_processes

Elapsed seconds of an epoch, so on a machine with as many free cores as processes. Starting them is not counted.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.campaigns import CLASSES, generate_images
from benchmarks.harness import Contender, Measurement, argument_parser, compare, counted_rounds, report_each
from codline.core.params import Compute
from codline.learning.augmentation import Augmentation
from codline.learning.compute import configure
from codline.learning.fit import TrainingData, fit
from codline.learning.inference import Normalize
from codline.learning.recipe import Recipe
from codline.learning.training_processes import Fit, open_fit
from codline.models.base import ModelSpec
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from codline.objectives import AnyObjective
from codline.objectives.base import TrainingContext
from codline.objectives.ema import EmaObjective

SHAPE, CPU = (3, 32, 32), Compute(device="cpu")


def train(fit_in_processes: Fit, model: ModelSpec, recipe: Recipe, steps: int) -> None:
    count = recipe.batch_size * steps
    images, labels = generate_images(2 * count, SHAPE, seed=0)
    normalize, ids = Normalize([0.5] * 3, [0.25] * 3, torch.device("cpu")), np.arange(2 * count)
    data = TrainingData(images.__getitem__, ids[:count], labels[:count], ids[count:], normalize, CLASSES)
    fit_in_processes(model.seeded_network(CLASSES, SHAPE, 0), data, recipe, TrainingContext(SHAPE), seed=0)


def measure_training(arguments: argparse.Namespace, fit_in_processes: Fit) -> Iterator[list[Measurement]]:
    model = SmallCnn(width=4) if arguments.quick else ResNet18(width=arguments.width)
    steps, rounds = 2 if arguments.quick else arguments.steps, counted_rounds(arguments)
    objectives_by_name: dict[str, list[AnyObjective]] = {"supervised": [], "semi-supervised": [EmaObjective()]}
    for name, objectives in objectives_by_name.items():
        recipe = Recipe(
            epochs=1, batch_size=arguments.batch, learning_rate=0.01, momentum=0.9, weight_decay=5e-4, decay_at=1.0,
            decay_by=0.1, start_from="previous", augment=Augmentation(crop=4, flip=True), objectives=objectives,
        )  # fmt: skip
        case = f"{model.name} of width {model.width}, {name}, {steps} steps of {recipe.batch_size} images 32x32"
        contenders: dict[str, Contender] = {
            "one process": partial(train, fit, model, recipe, steps),
            f"{arguments.processes} processes": partial(train, fit_in_processes, model, recipe, steps),
        }
        yield compare({case: contenders}, rounds, time.perf_counter, long_seconds=float("inf"))


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args(words)
    configure(CPU)
    title = "Training in several processes: elapsed seconds of an epoch"
    with open_fit(arguments.processes, CPU) as fit_in_processes:
        report_each(title, measure_training(arguments, fit_in_processes), arguments.json)


if __name__ == "__main__":
    main()
