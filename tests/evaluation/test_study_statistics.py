"""A study's statistics: intervals by hand, pairs by seed, the same bytes twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codline.core.files import read_json, write_json
from codline.evaluation import study_statistics
from codline.report import study_figure


def point(arm: str, seed: int, *accuracies: float) -> dict[str, Any]:
    return {
        "arm": arm,
        "seed": seed,
        "curve": [
            {"cycle": f"c{i + 1}", "labels": 100 * (i + 1), "accuracy": a, "loss": 1 - a}
            for i, a in enumerate(accuracies)
        ],
    }


@pytest.fixture
def study() -> dict[str, Any]:
    arms = [{"arm": name, "overrides": {}} for name in ("random", "cod", "never run")]
    points = [
        point("random", 0, 0.5, 0.6),
        point("random", 1, 0.6, 0.8),
        point("random", 2, 0.4, 0.7),
        point("cod", 0, 0.5, 0.8),
        point("cod", 2, 0.4, 0.8),
    ]
    return {
        "study": "small",
        "title": "A small study",
        "reference": "random",
        "seeds": [0, 1, 2],
        "arms": arms,
        "points": points,
    }


def test_an_interval_is_the_t_interval_of_scipy() -> None:
    values = [0.8, 0.83, 0.79, 0.86, 0.81]
    found = study_statistics.estimate(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert found["half"] is not None
    assert (found["mean"] - found["half"], found["mean"] + found["half"]) == pytest.approx((low, high))
    assert found["n"] == 5


def test_an_interval_by_hand() -> None:
    found = study_statistics.estimate([1.0, 3.0])  # standard error 1, and 12.706 is the t of one degree of freedom
    assert found == {"mean": 2.0, "half": pytest.approx(12.7062, abs=1e-4), "n": 2}


def test_one_seed_has_no_interval() -> None:
    assert study_statistics.estimate([0.7]) == {"mean": 0.7, "half": None, "n": 1}


def test_the_area_is_the_mean_height_of_the_curve() -> None:
    assert study_statistics.area({100: 0.4, 200: 0.6, 400: 0.8}) == pytest.approx((100 * 0.5 + 200 * 0.7) / 300)
    assert study_statistics.area({300: 0.9, 100: 0.5}) == pytest.approx(0.7)
    assert study_statistics.area({100: 0.4}) == 0.4


def test_every_estimate_says_how_many_seeds_it_rests_on(study: dict[str, Any]) -> None:
    random, cod, never = study_statistics.summary(study)["arms"]
    assert [row["n"] for row in random["curve"]] == [3, 3]
    assert (random["n"], cod["n"], never["n"]) == (3, 2, 0)
    assert cod["area"] == {"mean": pytest.approx(0.625), "half": pytest.approx(0.025 * 12.7062, abs=1e-4), "n": 2}
    assert never["area"] is None
    assert never["difference"] is None


def test_differences_are_paired_by_seed_and_leave_out_what_has_no_partner(study: dict[str, Any]) -> None:
    random, cod, _ = study_statistics.summary(study)["arms"]
    assert random["difference"] is None
    final, by_labels = cod["difference"]["final"], cod["difference"]["curve"]
    assert final == {"mean": pytest.approx(0.15), "half": pytest.approx(0.05 * 12.7062, abs=1e-4), "n": 2}
    assert [(row["labels"], row["n"]) for row in by_labels] == [(100, 2), (200, 2)]
    assert by_labels[0]["mean"] == pytest.approx(0.0)
    assert cod["difference"]["area"]["mean"] == pytest.approx(0.075)


def test_arms_without_a_common_seed_have_no_difference(study: dict[str, Any]) -> None:
    study["points"] = [p for p in study["points"] if (p["arm"], p["seed"]) in (("random", 1), ("cod", 0))]
    assert study_statistics.summary(study)["arms"][1]["difference"] is None


def test_the_table_has_a_row_for_each_arm_seed_and_cycle(study: dict[str, Any]) -> None:
    head, *rest = study_statistics.rows(study).splitlines()
    assert head == "study,arm,seed,cycle,labels,accuracy,loss"
    assert rest[0] == "small,random,0,c1,100,0.5,0.5"
    assert len(rest) == 10


def test_the_same_points_give_the_same_bytes(study: dict[str, Any], tmp_path: Path) -> None:
    names = ("results.json", "results.csv", "figure.png", "figure.svg")
    first, second = (tmp_path / name for name in "ab")
    for folder in (first, second):
        write_json(folder / "points.json", study)
        study_figure.main(folder, drawing=True)
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]
    assert read_json(first / "results.json")["arms"][1]["n"] == 2
    assert "cod (n = 2)" in (first / "figure.svg").read_text()
    assert "never run" not in (first / "figure.svg").read_text()
