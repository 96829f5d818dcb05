"""Scoring beside a bare forward pass and the released procedure, batches beside torchvision's, prepare beside a plain loop: python -m benchmarks.scoring"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import argparse
import contextlib
import hashlib
import io
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.campaigns import Plan, drawn, two_cycles
from benchmarks.harness import Contender, Measured, apart, clock, compared, parser, remarked, rounds, told_each
from codline.core.params import Compute
from codline.data import image_store, tables
from codline.data.labels import unlabeled
from codline.data.raw_dataset import EncodedImages
from codline.learning import model_file
from codline.learning.augmentation import Augment
from codline.learning.compute import PINS, configure
from codline.learning.inference import Normalize
from codline.models.base import Network
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace

MEAN, STD, SHAPE = [0.5] * 3, [0.25] * 3, (3, 32, 32)
RELEASED = 128  # the released code's batches
BRIEF = 32  # images of a pass that may take seven times as long as it should
Cases = dict[str, dict[str, Contender]]


def plans(asked: argparse.Namespace) -> dict[str, Plan]:
    if asked.quick:
        return {"small_cnn": Plan(300, SHAPE, SmallCnn(width=4), start=100, budget=20, epochs=1)}
    first = Plan(asked.images, SHAPE, SmallCnn(width=16), budget=250, epochs=1)
    return {
        "small_cnn": first,
        "resnet18": replace(
            first, count=max(400, asked.images // 20), model=ResNet18(), start=64, budget=32, epochs=1, batch_size=128
        ),
    }


class Seen:
    """What the score stage of a campaign's second cycle looks at, in memory."""

    def __init__(self, workspace: Workspace, plan: Plan) -> None:
        self.workspace, self.plan = workspace, plan
        self.ids = unlabeled(workspace.path("score", "pool", "c2"), workspace.path("score", "labeled", "c2"))
        self.pixels = image_store.opened(workspace.path("score", "images", "c2")).take(self.ids)
        self.normalize = Normalize(MEAN, STD, torch.device("cpu"))

    def network(self, argument: str) -> Network:
        return model_file.load_network(self.workspace.path("score", argument, "c2"), classes=10, shape=SHAPE)[0].eval()

    def query(self) -> np.ndarray:
        found: np.ndarray = tables.read(self.workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_numpy()
        return found


@torch.inference_mode()
def forward(network: Network, images: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [network(images[start : start + size]) for start in range(0, len(images), size)]


def passes(seen: Seen) -> dict[str, Contender]:
    network, size = seen.network("model"), seen.plan.batch_size
    ready = seen.normalize(torch.from_numpy(seen.pixels))
    return {
        "bare forward, floats in memory": lambda: forward(network, ready, size),
        "score stage, COD": lambda: seen.workspace.run("score", "c2"),
    }


def numbers(asked: argparse.Namespace) -> list[Measured]:
    """What it costs to keep to AVX2 and float32, the defaults: each way in a process of its own, for libraries choose their instructions once."""
    ways = {
        "AVX2, float32": ("avx2", False),
        "native, float32": ("native", False),
        "native, bfloat16": ("native", True),
        "AVX2, bfloat16": ("avx2", True),
    }
    if asked.quick:
        ways = {way: setting for way, setting in ways.items() if way == "AVX2, float32"}
    took = {way: apart(seconds_of, *setting, 1 if asked.quick else 2).answer for way, setting in ways.items()}
    first = next(iter(took.values()))
    return [
        Measured(
            f"one pass, {name}, {BRIEF} images 32x32, compute as said",
            way,
            took[way][name],
            took[way][name] / first[name],
        )
        for name in first
        for way in ways
    ]


def seconds_of(instructions: Literal["avx2", "native"], low: bool, rounds: int) -> dict[str, float]:
    """{model: median CPU seconds of a pass}"""
    for name in PINS["avx2"]:  # what the process before this one was told, and passed on
        os.environ.pop(name, None)
    device, found = configure(Compute(device="cpu", instructions=instructions)), {}
    images = torch.randn(BRIEF, *SHAPE, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    )
    for name, model in {"small_cnn": SmallCnn(width=16), "resnet18": ResNet18()}.items():
        network, times = model.drawn(10, SHAPE, 0).eval(), []
        for _ in range(rounds + 1):
            began = time.process_time()
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                forward(network, images, BRIEF)
            times.append(time.process_time() - began)
        found[name] = statistics.median(times[1:])
    return found


class Pictures(Dataset[torch.Tensor]):
    """An image at a time, through Pillow and transforms, as torchvision's datasets give them."""

    def __init__(self, pixels: np.ndarray, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.pixels, self.transform = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.transform(Image.fromarray(self.pixels[row]))


def plain() -> v2.Transform:
    return v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def released(seen: Seen) -> np.ndarray:
    """The released procedure: the last cycle's model is loaded from disk, both see the pool, half the squared distance of their probabilities is sorted.

    Weights lie in memory as torch draws them. In our order it takes 0.7 to 0.85 of the time.
    """
    now, before = (seen.network(name).to(memory_format=torch.contiguous_format) for name in ("model", "earlier"))
    apart = []
    with torch.inference_mode():
        for images in DataLoader(Pictures(seen.pixels, plain()), RELEASED):
            apart.append(0.5 * (now(images).softmax(1) - before(images).softmax(1)).square().sum(1))
    best = np.argsort(torch.cat(apart).numpy())[::-1]
    chosen: np.ndarray = seen.ids[best[: seen.plan.budget]]
    return chosen


def iterations(seen: Seen) -> dict[str, Contender]:
    def ours() -> np.ndarray:
        seen.workspace.run("score", "c2")
        seen.workspace.run("select", "c2")
        return seen.query()

    return {"released procedure": lambda: released(seen), "codline: score and select": ours}


def same_ids(reference: np.ndarray, ids: np.ndarray) -> str:
    together = len(np.intersect1d(reference, ids))
    assert together == len(ids), f"only {together} of {len(ids)} ids are the same"
    return "the same ids"


def scored(asked: argparse.Namespace) -> Iterator[list[Measured]]:
    for name, plan in plans(asked).items():
        with two_cycles(plan) as workspace:
            seen = Seen(workspace, plan)
            size = f"{name}, {len(seen.ids):,} images 32x32"
            yield compared({f"one pass, {size}": passes(seen)}, rounds(asked), clock(asked))
            yield remarked(
                compared({f"COD iteration, {size}": iterations(seen)}, rounds(asked), clock(asked)), same_ids
            )


def batches(count: int) -> dict[str, Contender]:
    """A shuffled epoch of augmented batches: as training makes them, and as a DataLoader does."""
    pixels, _ = drawn(count, SHAPE, 0)
    generator, augment, normalize = (
        torch.Generator().manual_seed(0),
        Augment(crop=4, flip=True),
        Normalize(MEAN, STD, torch.device("cpu")),
    )
    moved = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomCrop(32, padding=4),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    loader = DataLoader(Pictures(pixels, moved), RELEASED, shuffle=True, generator=torch.Generator().manual_seed(0))

    def ours(take: Callable[[np.ndarray], np.ndarray]) -> int:
        order = torch.randperm(count, generator=generator).numpy()
        parts = (order[start : start + RELEASED] for start in range(0, count, RELEASED))
        return sum(len(normalize(augment(torch.from_numpy(take(ids)), generator))) for ids in parts)

    return {
        "codline": lambda: ours(pixels.__getitem__),
        "torchvision v2, DataLoader": lambda: sum(len(images) for images in loader),
    }


def files(pixels: np.ndarray) -> list[bytes]:
    def png(image: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "png", compress_level=1)
        return file.getvalue()

    return [png(image) for image in pixels.transpose(0, 2, 3, 1)]


def loop(pictures: list[bytes], path: Path, hashed: bool) -> None:
    """A plain loop: decode, put in place, save. With hashes it does the bookkeeping of prepare, too."""
    found = np.empty((len(pictures), *SHAPE), np.uint8)
    for row, file in enumerate(pictures):
        with Image.open(io.BytesIO(file)) as picture:
            found[row] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
        if hashed:
            hashlib.sha256(found[row].tobytes()).hexdigest()
    np.save(path, found)


def array_loop(pictures: np.ndarray, path: Path) -> None:
    """Image after image as torchvision's datasets hand them out: the official CIFAR files are arrays."""
    found = np.empty((len(pictures), *SHAPE), np.uint8)
    for row, picture in enumerate(pictures):
        found[row] = np.asarray(Image.fromarray(picture)).transpose(2, 0, 1)
    np.save(path, found)


@contextlib.contextmanager
def ingestion(count: int) -> Iterator[Cases]:
    pixels, _ = drawn(count, SHAPE, 0)
    pictures, ids = files(pixels), np.arange(count)
    encoded = EncodedImages(count, pictures.__getitem__, SHAPE)
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        store, saved = Path(folder) / "images.arrow", Path(folder) / "images.npy"
        from_files: dict[str, Contender] = {
            "plain loop of Pillow and numpy": lambda: loop(pictures, saved, hashed=False),
            "the same, hashed": lambda: loop(pictures, saved, hashed=True),
            "codline: images.arrow, hashed and counted": lambda: image_store.write(
                store, ids, encoded, np.ones(count, bool)
            ),
        }
        from_array: dict[str, Contender] = {
            "plain loop of Pillow and numpy": lambda: array_loop(pixels.transpose(0, 2, 3, 1), saved),
            "numpy.save, nothing else": lambda: np.save(saved, pixels),
            "codline: images.arrow, hashed and counted": lambda: image_store.write(
                store, ids, pixels, np.ones(count, bool)
            ),
        }
        yield {
            f"prepare, {count:,} PNG files 32x32": from_files,
            f"prepare, an array of {count:,} images 32x32": from_array,
        }


def parts(asked: argparse.Namespace) -> Iterator[list[Measured]]:
    yield from scored(asked)
    yield numbers(asked)
    count = 200 if asked.quick else 5_000
    yield compared({f"an epoch of {count:,} augmented images 32x32": batches(count)}, rounds(asked), clock(asked))
    with ingestion(200 if asked.quick else asked.ingested) as cases:
        yield compared(cases, rounds(asked), clock(asked))


def main(words: list[str] | None = None) -> None:
    arguments = parser(__doc__, rounds=4)
    arguments.add_argument(
        "--images", type=int, default=8_000, help="of the pool that small_cnn sees; resnet18 sees a twentieth"
    )
    arguments.add_argument("--ingested", type=int, default=10_000, help="images of prepare")
    asked = arguments.parse_args(words)
    configure(Compute(device="cpu"))
    told_each("Scoring, batches and prepare: CPU seconds in one thread", parts(asked), asked.json)


if __name__ == "__main__":
    main()
