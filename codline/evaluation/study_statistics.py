"""Statistics of a study: estimates over seeds, from the learning curves of its points.

Intervals are 95% t-intervals over seeds, n is the number of seeds; a single seed has no interval.
"""

import csv
import io
import itertools
from typing import Any, TypedDict

import numpy as np
from scipy import stats

from codline.core.primary_metric import NAMES, primary_key

CONFIDENCE_LEVEL = 0.95


class Estimate(TypedDict):
    mean: float
    half: float | None  # half the width of the interval
    n: int


class PointResult(TypedDict):
    """A finished campaign of a study."""

    arm: str
    seed: int
    curve: list[dict[str, Any]]  # one row per cycle: cycle, labels, accuracy, loss; for segmentation also mean_iou


Curve = dict[int, float]  # {number of labels: accuracy, or mean IoU}


def estimate(values: list[float]) -> Estimate:
    n = len(values)
    mean = float(np.mean(values))
    if n == 1:
        return {"mean": mean, "half": None, "n": n}
    half = stats.t.ppf((1 + CONFIDENCE_LEVEL) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return {"mean": mean, "half": float(half), "n": n}


def area_under_curve(curve: Curve) -> float:
    """Trapezoidal area divided by the range of labels: a mean accuracy. For a single cycle, its accuracy."""
    labels = sorted(curve)
    accuracies = [curve[count] for count in labels]
    return float(np.trapezoid(accuracies, labels) / (labels[-1] - labels[0])) if len(labels) > 1 else accuracies[0]


def curves_by_seed(points: list[PointResult], arm: str) -> dict[int, Curve]:
    return {
        point["seed"]: {row["labels"]: row[primary_key(row)] for row in point["curve"]}
        for point in points
        if point["arm"] == arm
    }


def metric_name(points: list[PointResult]) -> str:
    """Name of the study's primary metric."""
    return NAMES[primary_key(points[0]["curve"][0])] if points and points[0]["curve"] else "accuracy"


def estimates_by_labels(curves: dict[int, Curve]) -> list[dict[str, Any]]:
    """A row for each cycle; `curves` are those of one arm, by seed.

    `labels` is the mean over seeds: a share of a pool whose size depends on the seed is not the same number for all.
    """
    by_cycle = itertools.zip_longest(*(sorted(curve.items()) for curve in curves.values()))
    points_of_cycles = ([point for point in cycle if point is not None] for cycle in by_cycle)
    return [
        {"labels": round(np.mean([labels for labels, _ in points])), **estimate([value for _, value in points])}
        for points in points_of_cycles
    ]


def paired_p_value(differences: list[float]) -> float | None:
    """Of a two-sided t-test; None for a single seed."""
    if len(differences) < 2:
        return None
    if len(set(differences)) == 1:
        return 0.0 if differences[0] else 1.0
    return float(stats.ttest_1samp(differences, 0).pvalue)


def correct_by_holm(p_values: list[float]) -> list[float]:
    """Holm's correction for several tests, in the given order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def paired_differences(ours: dict[int, Curve], theirs: dict[int, Curve]) -> dict[str, Any] | None:
    """Differences of two arms, paired by seed: the same seed means the same split and weights, so variance cancels."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    curves = {seed: {n: a[n] - b[n] for n in a.keys() & b.keys()} for seed, (a, b) in zip(seeds, pairs, strict=True)}
    areas = [area_under_curve(a) - area_under_curve(b) for a, b in pairs]
    return {
        "area": estimate(areas),
        "p": paired_p_value(areas),
        "final": estimate([a[max(a)] - b[max(b)] for a, b in pairs]),
        "curve": estimates_by_labels(curves),
    }


def summarize_study(study: dict[str, Any]) -> dict[str, Any]:
    """The content of results.json: the study, with each arm's estimates and its difference to the reference arm.

    `p` is of the difference in area; `p_holm` is corrected for the number of arms.
    """
    points: list[PointResult] = study["points"]
    reference = curves_by_seed(points, study["reference"])
    arms = []
    for arm in study["arms"]:
        curves = curves_by_seed(points, arm["arm"])
        is_reference = arm["arm"] == study["reference"]
        estimates = {
            "n": len(curves),
            "curve": estimates_by_labels(curves),
            "area": estimate([area_under_curve(curve) for curve in curves.values()]) if curves else None,
            "final": estimate([curve[max(curve)] for curve in curves.values()]) if curves else None,
            "difference": None if is_reference else paired_differences(curves, reference),
        }
        arms.append(arm | estimates)
    tested = [arm["difference"] for arm in arms if arm["difference"] and arm["difference"]["p"] is not None]
    for difference, p in zip(tested, correct_by_holm([each["p"] for each in tested]), strict=True):
        difference["p_holm"] = p
    return study | {"interval": "95% t-interval over seeds; differences are paired by seed", "arms": arms}


def results_csv(study: dict[str, Any]) -> str:
    """The content of results.csv: a row for each arm, seed and cycle."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    has_iou = metric_name(study["points"]) == "mean IoU"
    columns = ["cycle", "labels", "accuracy", *["mean_iou"] * has_iou, "loss"]
    writer.writerow(["study", "arm", "seed", *columns])
    for point in study["points"]:
        head = [study["study"], point["arm"], point["seed"]]
        writer.writerows([*head, *(row[key] for key in columns)] for row in point["curve"])
    return text.getvalue()
