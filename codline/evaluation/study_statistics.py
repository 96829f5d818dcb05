"""A study's statistics, from the curves of its points.

Intervals are 95% t-intervals over seeds; n is the number of seeds that an estimate rests on. With one seed there is no interval.
"""

import csv
import io
from typing import Any, TypedDict

import numpy as np
from scipy import stats

from codline.core.primary_metric import headline

CONFIDENCE = 0.95


class Estimate(TypedDict):
    mean: float
    half: float | None  # half the width of the interval
    n: int


class Point(TypedDict):
    """A finished campaign of a study."""

    arm: str
    seed: int
    curve: list[dict[str, Any]]  # cycle, labels, accuracy, loss, and of segmentation mean_iou


Curve = dict[int, float]  # {labels: accuracy, or mean IoU}


def estimate(values: list[float]) -> Estimate:
    n = len(values)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None
    return {"mean": float(np.mean(values)), "half": half, "n": n}


def area(curve: Curve) -> float:
    """Under the learning curve, by trapezoids, over the range of labels: so it reads as an accuracy. Of a single cycle, its accuracy."""
    labels = sorted(curve)
    accuracies = [curve[count] for count in labels]
    return float(np.trapezoid(accuracies, labels) / (labels[-1] - labels[0])) if len(labels) > 1 else accuracies[0]


def curves(points: list[Point], arm: str) -> dict[int, Curve]:
    """{seed: its curve}"""
    return {
        point["seed"]: {row["labels"]: headline(row)[1] for row in point["curve"]}
        for point in points
        if point["arm"] == arm
    }


def measure(points: list[Point]) -> str:
    """What the study's models are measured by."""
    return headline(points[0]["curve"][0])[0] if points and points[0]["curve"] else "accuracy"


def at_labels(seeds: dict[int, Curve]) -> list[dict[str, Any]]:
    counts = sorted({labels for curve in seeds.values() for labels in curve})
    return [
        {"labels": labels, **estimate([curve[labels] for curve in seeds.values() if labels in curve])}
        for labels in counts
    ]


def differences(ours: dict[int, Curve], theirs: dict[int, Curve]) -> dict[str, Any] | None:
    """Seed by seed: two arms with one seed start from the same split and weights, so much of the chance cancels."""
    both = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    if not both:
        return None
    pairs = {
        seed: {n: ours[seed][n] - theirs[seed][n] for n in ours[seed].keys() & theirs[seed].keys()}
        for seed in sorted(ours.keys() & theirs.keys())
    }
    return {
        "area": estimate([area(a) - area(b) for a, b in both]),
        "final": estimate([a[max(a)] - b[max(b)] for a, b in both]),
        "curve": at_labels(pairs),
    }


def summary(study: dict[str, Any]) -> dict[str, Any]:
    """What results.json says: the study as it was asked for, with each arm's estimates and its difference to the reference."""
    points: list[Point] = study["points"]
    reference = curves(points, study["reference"])
    arms = []
    for arm in study["arms"]:
        seeds = curves(points, arm["arm"])
        found: dict[str, Any] = {
            "n": len(seeds),
            "curve": at_labels(seeds),
            "area": None,
            "final": None,
            "difference": None,
        }
        if seeds:
            found["area"] = estimate([area(curve) for curve in seeds.values()])
            found["final"] = estimate([curve[max(curve)] for curve in seeds.values()])
        if arm["arm"] != study["reference"]:
            found["difference"] = differences(seeds, reference)
        arms.append(arm | found)
    return study | {"interval": "95% t-interval over seeds; differences are paired by seed", "arms": arms}


def rows(study: dict[str, Any]) -> str:
    """results.csv: a row for each arm, seed and cycle."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["cycle", "labels", "accuracy", *(["mean_iou"] if measure(study["points"]) == "mean IoU" else []), "loss"]
    writer.writerow(["study", "arm", "seed", *columns])
    for point in study["points"]:
        writer.writerows(
            [study["study"], point["arm"], point["seed"], *(row[key] for key in columns)] for row in point["curve"]
        )
    return text.getvalue()
