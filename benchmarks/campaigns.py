"""A campaign of generated images in a temporary folder, made by the stages themselves, in this process."""

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
from tests.workspace import Workspace, created

CLASSES = 10
SMALL_CNN = SmallCnn(width=16)
STRETCH = 10_000  # images drawn together: noise takes eight times the memory of bytes


class Generated(DatasetSpec):
    """Each class is a coarse pattern; an image is one of them, shifted in brightness, under noise. Every class is hard to tell from another."""

    name: Literal["generated"] = "generated"
    count: int
    shape: tuple[int, int, int]
    seed: int = 0

    def load(self, rng: np.random.Generator) -> RawDataset:  # noqa: ARG002 (one signature for all datasets)
        images, labels = drawn(self.count, self.shape, self.seed)
        is_test = np.zeros(self.count, bool)
        is_test[: max(10, self.count // 100)] = True
        return RawDataset(
            images, labels, is_test, tuple(map(str, range(CLASSES))), (0.5,) * self.shape[0], (0.25,) * self.shape[0]
        )


def drawn(count: int, shape: tuple[int, int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    coarse = rng.integers(64, 192, (CLASSES, channels, 4, 4))
    patterns = (
        coarse.repeat(-(-height // 4), axis=2).repeat(-(-width // 4), axis=3)[:, :, :height, :width].astype(np.float32)
    )
    labels = rng.integers(0, CLASSES, count, np.int32)
    images = np.empty((count, *shape), np.uint8)
    for start in range(0, count, STRETCH):
        some = slice(start, start + STRETCH)
        noise = rng.standard_normal((len(labels[some]), *shape), np.float32) * 64
        images[some] = np.clip(patterns[labels[some]] + noise, 0, 255)
    return images, labels


@dataclass(frozen=True)
class Plan:
    count: int
    shape: tuple[int, int, int] = (1, 28, 28)
    model: ModelSpec = SMALL_CNN
    start: int = 500
    budget: int = 500
    epochs: int = 2
    batch_size: int = 512  # of scoring


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """No bars of stages: they would draw over the benchmark's."""
    before = os.environ.get("CODLINE_QUIET", "")
    os.environ["CODLINE_QUIET"] = "1"
    try:
        yield
    finally:
        os.environ["CODLINE_QUIET"] = before


@contextlib.contextmanager
def prepared(plan: Plan) -> Iterator[Workspace]:
    """The campaign's directory, which is the current one meanwhile, after prepare."""
    with TemporaryDirectory(prefix="codline-benchmark-") as folder, contextlib.chdir(folder), silent():
        workspace = created(Path(folder))
        workspace.change(
            **{
                "prepare.model": plan.model.model_dump(),
                "train.epochs": plan.epochs,
                "score.batch_size": plan.batch_size,
                "select.budget": plan.budget,
            }
        )
        data = Generated(count=plan.count, shape=plan.shape)
        # The dataset is none of the family: params.yaml could not name it.
        params = Params.model_construct(dataset=data, start=plan.start, model=plan.model)
        outs = {name: Path(value) for name, value in workspace.pipeline.arguments("prepare").items()}
        prepare(params, seed=0, compute=Compute(device="cpu"), **outs)
        yield workspace


@contextlib.contextmanager
def two_cycles(plan: Plan, **changes: Any) -> Iterator[Workspace]:
    """With the first cycle done and the second trained: what the second's score stage finds. `changes` are dotted parameters."""
    with prepared(plan) as workspace:
        workspace.change(**changes)
        for stage in ("train", "score", "select", "annotate", "merge"):
            workspace.run(stage, "c1")
        workspace.run("train", "c2")
        yield workspace
