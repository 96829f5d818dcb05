"""Reads finished campaigns: what the figures and tables of the paper need of their files, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from codline.core.files import read_json
from codline.core.primary_metric import primary_key
from codline.evaluation.study_statistics import Estimate, estimate
from codline.paper.published import TITLES
from codline.runtime.pipeline import Pipeline


@dataclass(frozen=True)
class Campaign:
    """A finished campaign. `curve` has a row per cycle: cycle, labels, accuracy, loss; for segmentation mean_iou."""

    arm: str
    seed: int
    folder: Path
    curve: list[dict[str, Any]]

    @cached_property
    def pipeline(self) -> Pipeline:
        return Pipeline(self.folder)

    @cached_property
    def pool(self) -> int:
        """The number of images that can be labelled."""
        count: int = pq.read_metadata(self.pipeline.path("prepare", "pool")).num_rows
        return count

    @property
    def shares(self) -> list[float]:
        """The share of labelled images in each cycle, in %."""
        return [100 * row["labels"] / self.pool for row in self.curve]

    @property
    def values(self) -> list[float]:
        """The primary metric of each cycle, in %."""
        return [100 * row[primary_key(row)] for row in self.curve]

    @property
    def queries(self) -> list[str]:
        return self.pipeline.queries

    def details(self, cycle: str) -> dict[str, Any]:
        content: dict[str, Any] = read_json(self.pipeline.path("evaluate", "details", cycle))
        return content

    def diagnosis(self, cycle: str) -> "Diagnosis":
        return Diagnosis(read_json(self.pipeline.path("diagnose", "diagnostics", cycle)))


@dataclass(frozen=True)
class Diagnosis:
    """diagnostics.json of a query: the only place that knows its keys."""

    content: dict[str, Any]

    @property
    def mean_discrepancy(self) -> float:
        """The mean COD of the unlabelled images; nan without outputs of a previous cycle."""
        value = self.content.get("mean_discrepancy")
        return float("nan") if value is None else float(value)

    @property
    def mean_loss(self) -> float:
        return float(self.content["mean_loss"])

    @property
    def bucket_losses(self) -> list[float]:
        """The mean true loss of equally many images, by descending score."""
        losses: list[float] = self.content["bucket_losses"]
        return losses

    @property
    def capture(self) -> np.ndarray:
        return 100 * np.array(self.content["capture"])

    @property
    def tod_captures(self) -> dict[int, np.ndarray]:
        """{steps: capture curve of TOD over so many steps before the end of the training}"""
        return {int(steps): 100 * np.array(each["capture"]) for steps, each in self.content["tod"].items()}

    @property
    def gradient_norms(self) -> "GradientNorms":
        content = self.content["squared_gradient_norm"]
        within = content["within_cycle"]
        return GradientNorms(content["all"], content["variation"], within["steps"], within["all"])


class GradientNorms(NamedTuple):
    """Mean squared gradient norm of the outputs over all training images."""

    after: float  # the cycle's training
    variation: float  # deviation over images, divided by the mean
    steps: list[int]  # of the training at which it was measured, the last at its end
    within: list[float]  # its values there


@dataclass(frozen=True)
class PanelCampaigns:
    """The finished campaigns for one of the paper's datasets."""

    dataset: str
    used: str  # what is used for it, such as digits
    description: str  # of what is used
    missing: str  # without data: what to give
    campaigns: list[Campaign]

    @property
    def title(self) -> str:
        return TITLES[self.dataset]

    @property
    def is_stand_in(self) -> bool:
        return self.used != self.dataset

    def of(self, arm: str) -> list[Campaign]:
        return [campaign for campaign in self.campaigns if campaign.arm == arm]


@dataclass(frozen=True)
class Request:
    """What an item is drawn from."""

    item: str
    scale: str
    panels: list[PanelCampaigns]
    presets: dict[str, dict[str, Any]]


def read_request(path: Path) -> Request:
    raw = read_json(path)
    panels = [
        PanelCampaigns(
            panel["dataset"],
            panel["used"],
            panel["description"],
            panel["missing"],
            [Campaign(each["arm"], each["seed"], Path(each["folder"]), each["curve"]) for each in panel["campaigns"]],
        )
        for panel in raw["panels"]
    ]
    return Request(raw["item"], raw["scale"], panels, raw["presets"])


def mean_curve(campaigns: list[Campaign]) -> tuple[list[float], list[Estimate]]:
    """Mean shares of labels in %, and the estimate of the primary metric in % over seeds, cycle by cycle.

    Datasets whose splits are drawn by content have slightly different numbers of labels with each seed.
    """
    shares = [fmean(values) for values in zip(*(campaign.shares for campaign in campaigns), strict=True)]
    return shares, estimates([campaign.values for campaign in campaigns])


def estimates(rows: Sequence[Sequence[float]]) -> list[Estimate]:
    """One estimate for each position, over the rows, which are those of the seeds."""
    return [estimate(list(values)) for values in zip(*rows, strict=True)]
