"""fit() against a bare torch loop that does the same arithmetic on the same images: python -m benchmarks.training_step"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn import functional

from benchmarks.harness import Clock, Laps, alternated, clock, in_turn, parser, rounds, told
from codline.core.params import Compute
from codline.data import masks
from codline.learning import task_loss
from codline.learning.augmentation import Augment
from codline.learning.compute import configure
from codline.learning.fit import Examples, Recipe, fit
from codline.learning.inference import Normalize
from codline.models.base import ModelSpec, Network
from codline.models.drn_d_22 import DrnD22
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet
from codline.objectives.ema import Ema
from codline.objectives.none import Nothing

CLASSES, RATE = 10, 0.01
ENOUGH = 20.0  # seconds of a case: short steps need many rounds for a hundredth to show
Seen = tuple[torch.Tensor, torch.Tensor]  # images, what is wanted of them
CASES: dict[str, tuple[ModelSpec, tuple[int, int, int], int, int, int]] = {  # model, shape, batch, steps, epochs
    "small_cnn, 28x28": (SmallCnn(width=16), (1, 28, 28), 64, 12, 1),
    "resnet18, 32x32": (ResNet18(), (3, 32, 32), 16, 4, 1),
    "small_unet, 64x96": (SmallUnet(width=8), (3, 64, 96), 8, 8, 2),  # of many epochs only the first decodes masks
    "drn_d_22, 64x64": (DrnD22(), (3, 64, 64), 4, 8, 1),
}


def recipe(batch: int, epochs: int, semi: bool) -> Recipe:
    return Recipe(
        epochs=epochs,
        batch_size=batch,
        learning_rate=RATE,
        momentum=0.9,
        weight_decay=5e-4,
        decay_at=1.0,
        decay_by=0.1,
        start_from="previous",
        augment=Augment(crop=2, flip=True),
        objective=Ema() if semi else Nothing(),
    )


def race(
    spec: ModelSpec, shape: tuple[int, int, int], batch: int, steps: int, epochs: int, semi: bool, clock: Clock
) -> Callable[[], dict[str, Laps]]:
    rng = np.random.default_rng(0)
    count = batch * steps
    pixels: np.ndarray = rng.integers(0, 256, (2 * count, *shape), np.uint8)
    dense = spec.task == "segmentation"
    labels = rng.integers(0, CLASSES, (count, shape[1] // 8, shape[2] // 8) if dense else (count,), np.uint8)
    labels = labels.repeat(8, axis=1).repeat(8, axis=2) if dense else labels
    kept = np.array([masks.encoded(one) for one in labels], object) if dense else labels.astype(np.int32)
    normalize = Normalize([0.5] * shape[0], [0.25] * shape[0], torch.device("cpu"))
    ours, theirs = (spec.drawn(CLASSES, shape, 0) for _ in range(2))
    targets = torch.from_numpy(labels.astype(np.int64))
    raw, generator, planned = torch.from_numpy(pixels), torch.Generator().manual_seed(0), recipe(batch, epochs, semi)
    augment = planned.augment

    def seen(rows: slice, labeled: bool) -> Seen:
        if not labeled:
            return normalize(augment(raw[count:][rows], generator)), targets[rows]
        if dense:
            images, wanted = augment.pair(raw[rows], torch.from_numpy(labels[rows]), generator)
            return normalize(images), wanted.long()
        return normalize(augment(raw[rows], generator)), targets[rows]

    def fitted(lap: Callable[[], None]) -> None:
        def take(ids: np.ndarray) -> np.ndarray:
            if ids[0] < count and len(ids) == batch:  # a step begins when its labelled images are fetched
                lap()
            found: np.ndarray = pixels[ids]
            return found

        examples = Examples(take, np.arange(count), kept, np.arange(count, 2 * count), normalize)
        fit(ours, examples, planned, seed=0, resume=None, on_epoch=lambda _: None)

    def act() -> dict[str, Laps]:
        laps = in_turn(fitted, bare(theirs, seen, count, planned), clock)
        return {"bare torch loop": laps[1], "fit()": laps[0]}

    return act


def bare(network: Network, seen: Callable[[slice, bool], Seen], count: int, planned: Recipe) -> Iterator[None]:
    """Bytes in memory are cropped, flipped and standardised, losses added up and right answers counted, as in fit(). It rests after every step."""
    network.train()
    batch, semi = planned.batch_size, isinstance(planned.objective, Ema)
    optimizer = torch.optim.SGD(network.parameters(), RATE, 0.9, weight_decay=5e-4)
    average = (
        torch.optim.swa_utils.AveragedModel(network, avg_fn=lambda mean, now, _: torch.lerp(now, mean, 0.999))
        if semi
        else None
    )
    total, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
    for start in [*range(0, count, batch)] * planned.epochs:
        images, wanted = seen(slice(start, start + batch), True)
        logits = network(images)
        loss = task_loss.loss(logits, wanted)
        if average is not None:
            unlabeled, _ = seen(slice(start, start + batch), False)
            with torch.no_grad():
                theirs = average(unlabeled).softmax(1)
            loss = (
                loss + 0.05 * functional.mse_loss(network(unlabeled).softmax(1), theirs, reduction="none").sum(1).mean()
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if average is not None:
            average.update_parameters(network)
        total += loss.detach() * len(images)
        right += (logits.argmax(1) == wanted).sum()
        yield


def main(words: list[str] | None = None) -> None:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--enough", type=float, default=ENOUGH, help="seconds of a case, for which there are more rounds"
    )
    asked = options.parse_args(words)
    configure(Compute(device="cpu"))
    cases = {
        f"{case}, {'semi-supervised' if semi else 'supervised'}": race(*setting, semi, clock(asked))
        for case, setting in list(CASES.items())[: 1 if asked.quick else None]
        for semi in (False, True)
        if not (semi and case.startswith("drn"))
    }
    told("Training: CPU seconds of some steps", alternated(cases, rounds(asked), enough=asked.enough), asked.json)


if __name__ == "__main__":
    main()
