"""Scoring, training batches and prepare, compared with simpler or released code: python -m benchmarks.scoring"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import argparse
import contextlib
import hashlib
import io
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.campaigns import CampaignSize, campaign_at_second_score, generate_images
from benchmarks.harness import (
    Contender,
    Measurement,
    add_remarks,
    argument_parser,
    chosen_clock,
    compare,
    counted_rounds,
    report_each,
    run_in_subprocess,
)
from codline.core.params import Compute
from codline.data import tables
from codline.data.image_store import open_image_store, write_images
from codline.data.labels import unlabeled_ids
from codline.data.raw_dataset import EncodedImages
from codline.learning import model_file
from codline.learning.augmentation import Augmentation
from codline.learning.compute import INSTRUCTION_VARIABLES, configure
from codline.learning.inference import Normalize
from codline.models.networks.network import Network
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace

MEAN, STD, SHAPE = [0.5] * 3, [0.25] * 3, (3, 32, 32)
NORMALIZE = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
RELEASED_BATCH_SIZE = 128
SHORT_PASS = 32  # images: with bfloat16 on a CPU without units for it, a pass takes seven times as long


def campaign_sizes(arguments: argparse.Namespace) -> dict[str, CampaignSize]:
    if arguments.quick:
        return {"small_cnn": CampaignSize(300, SHAPE, SmallCnn(width=4), start=100, budget=20, epochs=1)}
    small = CampaignSize(arguments.images, SHAPE, SmallCnn(width=16), budget=250, epochs=1)
    count = max(400, arguments.images // 20)
    return {
        "small_cnn": small,
        "resnet18": replace(small, count=count, model=ResNet18(), start=64, budget=32, batch_size=128),
    }


class ScoreInputs:
    """What the score stage of a campaign's second cycle reads, in memory."""

    def __init__(self, workspace: Workspace, size: CampaignSize) -> None:
        self.workspace, self.size = workspace, size
        self.ids = unlabeled_ids(workspace.path("score", "pool", "c2"), workspace.path("score", "labeled", "c2"))
        self.pixels = open_image_store(workspace.path("score", "images", "c2")).take(self.ids)

    def load_network(self, argument: str) -> Network:
        return model_file.load_network(self.workspace.path("score", argument, "c2"), classes=10, shape=SHAPE)[0].eval()


@torch.inference_mode()
def forward(network: Network, images: torch.Tensor, batch_size: int) -> list[torch.Tensor]:
    return [network(batch) for batch in images.split(batch_size)]


def forward_contenders(inputs: ScoreInputs) -> dict[str, Contender]:
    network, normalize = inputs.load_network("model"), Normalize(MEAN, STD, torch.device("cpu"))
    images = normalize(torch.from_numpy(inputs.pixels))
    return {
        "bare forward, floats in memory": lambda: forward(network, images, inputs.size.batch_size),
        "score stage, COD": lambda: inputs.workspace.run("score", "c2"),
    }


class PillowImages(Dataset[torch.Tensor]):
    """One image at a time, through Pillow and transforms, like torchvision's datasets."""

    def __init__(self, pixels: np.ndarray, transforms: list[v2.Transform]) -> None:
        self.pixels, self.transform = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), v2.Compose(transforms)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> torch.Tensor:
        image: torch.Tensor = self.transform(Image.fromarray(self.pixels[row]))
        return image


def select_like_released_code(inputs: ScoreInputs) -> np.ndarray:
    """The released procedure: run both models on the pool, and sort half the squared distance of the probabilities.

    Weights are in torch's contiguous format, as in the released code; channels_last takes 0.7 to 0.85 of the time.
    """
    networks = [inputs.load_network(name) for name in ("model", "previous_model")]
    now, before = (network.to(memory_format=torch.contiguous_format) for network in networks)
    distances = []
    with torch.inference_mode():
        for images in DataLoader(PillowImages(inputs.pixels, [v2.ToImage(), *NORMALIZE]), RELEASED_BATCH_SIZE):
            distances.append(0.5 * (now(images).softmax(1) - before(images).softmax(1)).square().sum(1))
    descending = np.argsort(torch.cat(distances).numpy())[::-1]
    query: np.ndarray = inputs.ids[descending[: inputs.size.budget]]
    return query


def select_by_stages(workspace: Workspace) -> np.ndarray:
    workspace.run("score", "c2")
    workspace.run("select", "c2")
    query: np.ndarray = tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_numpy()
    return query


def compare_ids(reference: np.ndarray, ids: np.ndarray) -> str:
    common = len(np.intersect1d(reference, ids))
    assert common == len(ids), f"only {common} of {len(ids)} ids are the same"
    return "the same ids"


def measure_scoring(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    rounds, clock = counted_rounds(arguments), chosen_clock(arguments)
    for name, size in campaign_sizes(arguments).items():
        with campaign_at_second_score(size) as workspace:
            inputs = ScoreInputs(workspace, size)
            images = f"{name}, {len(inputs.ids):,} images 32x32"
            yield compare({f"one pass, {images}": forward_contenders(inputs)}, rounds, clock)
            contenders: dict[str, Contender] = {
                "released procedure": partial(select_like_released_code, inputs),
                "codline: score and select": partial(select_by_stages, workspace),
            }
            yield add_remarks(compare({f"COD iteration, {images}": contenders}, rounds, clock), compare_ids)


def measure_instructions(quick: bool) -> list[Measurement]:
    """The cost of the defaults, AVX2 and float32. One process each, because libraries choose instructions once."""
    settings: dict[str, tuple[str, bool]] = {"AVX2, float32": ("avx2", False)}
    if not quick:
        settings["native, float32"] = ("native", False)
        settings["native, bfloat16"] = ("native", True)
        settings["AVX2, bfloat16"] = ("avx2", True)
    rounds = 1 if quick else 2
    seconds = {name: run_in_subprocess(time_passes, *setting, rounds).answer for name, setting in settings.items()}
    reference = seconds["AVX2, float32"]
    return [
        Measurement(
            case=f"one pass, {model}, {SHORT_PASS} images 32x32, by compute settings",
            contender=name,
            seconds=seconds[name][model],
            ratio=seconds[name][model] / reference[model],
        )
        for model in reference
        for name in settings
    ]


def time_passes(instructions: Literal["avx2", "native"], bfloat16: bool, rounds: int) -> dict[str, float]:
    """Median CPU seconds of a forward pass, by model."""
    for name in INSTRUCTION_VARIABLES["avx2"]:  # inherited from the parent process
        os.environ.pop(name, None)
    device = configure(Compute(device="cpu", instructions=instructions))
    images = torch.randn(SHORT_PASS, *SHAPE, generator=torch.Generator().manual_seed(0))
    images, medians = images.to(memory_format=torch.channels_last), {}
    for name, model in {"small_cnn": SmallCnn(width=16), "resnet18": ResNet18()}.items():
        network, times = model.seeded_network(10, SHAPE, 0).eval(), []
        for _ in range(rounds + 1):
            start = time.process_time()
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                forward(network, images, SHORT_PASS)
            times.append(time.process_time() - start)
        medians[name] = statistics.median(times[1:])
    return medians


def epoch_contenders(count: int) -> dict[str, Contender]:
    """A shuffled epoch of augmented batches: as codline's training makes them, and with a DataLoader."""
    pixels, _ = generate_images(count, SHAPE, 0)
    generator, augment = torch.Generator().manual_seed(0), Augmentation(crop=4, flip=True)
    normalize = Normalize(MEAN, STD, torch.device("cpu"))
    transforms = [v2.ToImage(), v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *NORMALIZE]
    shuffle = torch.Generator().manual_seed(0)
    loader = DataLoader(PillowImages(pixels, transforms), RELEASED_BATCH_SIZE, shuffle=True, generator=shuffle)

    def epoch() -> int:
        batches = torch.randperm(count, generator=generator).split(RELEASED_BATCH_SIZE)
        return sum(len(normalize(augment(torch.from_numpy(pixels[rows.numpy()]), generator))) for rows in batches)

    return {"codline": epoch, "torchvision v2, DataLoader": lambda: sum(len(images) for images in loader)}


def encode_png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=1)
    return file.getvalue()


def decode_in_a_loop(files: list[bytes], path: Path, hashed: bool) -> None:
    """Decode each file into an array and save it. With hashes, it does the same work as prepare."""
    pixels = np.empty((len(files), *SHAPE), np.uint8)
    for row, file in enumerate(files):
        with Image.open(io.BytesIO(file)) as image:
            pixels[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        if hashed:
            hashlib.sha256(pixels[row].tobytes()).hexdigest()
    np.save(path, pixels)


def copy_in_a_loop(images: np.ndarray, path: Path) -> None:
    """Image by image, as torchvision's CIFAR datasets, which read arrays, return them."""
    pixels = np.empty((len(images), *SHAPE), np.uint8)
    for row, image in enumerate(images):
        pixels[row] = np.asarray(Image.fromarray(image)).transpose(2, 0, 1)
    np.save(path, pixels)


@contextlib.contextmanager
def prepare_cases(count: int) -> Iterator[dict[str, dict[str, Contender]]]:
    pixels, _ = generate_images(count, SHAPE, 0)
    images, ids, counted = pixels.transpose(0, 2, 3, 1), np.arange(count), np.ones(count, bool)
    files = [encode_png(image) for image in images]
    encoded = EncodedImages(count, files.__getitem__, SHAPE)
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        store, array = Path(folder) / "images", Path(folder) / "images.npy"
        yield {
            f"prepare, {count:,} PNG files 32x32": {
                "plain loop of Pillow and numpy": lambda: decode_in_a_loop(files, array, hashed=False),
                "the same, hashed": lambda: decode_in_a_loop(files, array, hashed=True),
                "codline: image store, hashed and counted": lambda: write_images(store, ids, encoded, counted),
            },
            f"prepare, an array of {count:,} images 32x32": {
                "plain loop of Pillow and numpy": lambda: copy_in_a_loop(images, array),
                "numpy.save, nothing else": lambda: np.save(array, pixels),
                "codline: image store, hashed and counted": lambda: write_images(store, ids, pixels, counted),
            },
        }


def measure_all(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    yield from measure_scoring(arguments)
    yield measure_instructions(arguments.quick)
    rounds, clock = counted_rounds(arguments), chosen_clock(arguments)
    count = 200 if arguments.quick else 5_000
    yield compare({f"an epoch of {count:,} augmented images 32x32": epoch_contenders(count)}, rounds, clock)
    with prepare_cases(200 if arguments.quick else arguments.ingested) as cases:
        yield compare(cases, rounds, clock)


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=4)
    images = "size of small_cnn's pool; resnet18's has a twentieth"
    parser.add_argument("--images", type=int, default=8_000, help=images)
    parser.add_argument("--ingested", type=int, default=10_000, help="number of images to prepare")
    arguments = parser.parse_args(words)
    configure(Compute(device="cpu"))
    report_each("Scoring, batches and prepare: CPU seconds in one thread", measure_all(arguments), arguments.json)


if __name__ == "__main__":
    main()
