"""Campaigns of generated images in temporary directories, created by running the stages in this process."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from codline.core.params import Compute
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec
from codline.models.base import ModelSpec
from codline.models.small_cnn import SmallCnn
from stages.prepare import Params, prepare
from tests.workspace import Workspace, create_workspace

CLASSES = 10
SMALL_CNN = SmallCnn(width=16)
CHUNK = 10_000  # images generated together: their noise takes four times the memory of the images


class GeneratedImages(DatasetSpec):
    """Each class is a coarse pattern; an image is its class's pattern under strong noise."""

    name: Literal["generated"] = "generated"
    count: int
    shape: tuple[int, int, int]
    seed: int = 0
    content_ids: bool = False  # scattered ids, as those of photographs, instead of positions

    def load(self, rng: np.random.Generator) -> RawDataset:  # noqa: ARG002 (one signature for all datasets)
        images, labels = generate_images(self.count, self.shape, self.seed)
        is_test = np.zeros(self.count, bool)
        is_test[: max(10, self.count // 100)] = True
        classes, channels = tuple(map(str, range(CLASSES))), self.shape[0]
        ids = np.unique(np.random.default_rng(self.seed).integers(0, 2**63, self.count)) if self.content_ids else None
        return RawDataset(images, labels, is_test, classes, (0.5,) * channels, (0.25,) * channels, ids)


def generate_images(count: int, shape: tuple[int, int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    coarse = rng.integers(64, 192, (CLASSES, channels, 4, 4))
    patterns = coarse.repeat(-(-height // 4), axis=2).repeat(-(-width // 4), axis=3)
    patterns = patterns[:, :, :height, :width].astype(np.float32)
    labels = rng.integers(0, CLASSES, count, np.int32)
    images = np.empty((count, *shape), np.uint8)
    for start in range(0, count, CHUNK):
        chunk = slice(start, start + CHUNK)
        noise = rng.standard_normal((len(labels[chunk]), *shape), np.float32) * 64
        images[chunk] = np.clip(patterns[labels[chunk]] + noise, 0, 255)
    return images, labels


@dataclass(frozen=True)
class CampaignSize:
    count: int
    shape: tuple[int, int, int] = (1, 28, 28)
    model: ModelSpec = SMALL_CNN
    start: int = 500
    budget: int = 500
    epochs: int = 2
    batch_size: int = 512  # of score
    content_ids: bool = False


@contextlib.contextmanager
def without_progress_bars() -> Iterator[None]:
    """Turn off the stages' progress bars, which would draw over the benchmark's."""
    before = os.environ.get("CODLINE_QUIET", "")
    os.environ["CODLINE_QUIET"] = "1"
    try:
        yield
    finally:
        os.environ["CODLINE_QUIET"] = before


@contextlib.contextmanager
def prepared_campaign(size: CampaignSize) -> Iterator[Workspace]:
    """Run prepare, and yield the campaign's directory, which is the current one in the meantime."""
    with TemporaryDirectory(prefix="codline-benchmark-") as folder, contextlib.chdir(folder), without_progress_bars():
        workspace = create_workspace(Path(folder))
        workspace.change(
            **{
                "prepare.model": size.model.model_dump(),
                "train.epochs": size.epochs,
                "score.batch_size": size.batch_size,
                "select.budget": size.budget,
            }
        )
        data = GeneratedImages(count=size.count, shape=size.shape, content_ids=size.content_ids)
        # Constructed without validation: the dataset is not a plug-in that params.yaml could name.
        params = Params.model_construct(dataset=data, start=size.start, validation=0, model=size.model)
        outs = {name: Path(value) for name, value in workspace.pipeline.arguments("prepare").items()}
        prepare(params, seed=0, compute=Compute(device="cpu"), inputs={}, **outs)
        yield workspace


@contextlib.contextmanager
def campaign_at_second_score(size: CampaignSize, **changes: Any) -> Iterator[Workspace]:
    """Run the first cycle, and the second up to its score stage. `changes` are parameters by dotted name."""
    with prepared_campaign(size) as workspace:
        workspace.change(**changes)
        for stage in ("train", "score", "select", "annotate", "merge"):
            workspace.run(stage, "c1")
        workspace.run("train", "c2")
        yield workspace
