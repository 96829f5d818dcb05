"""Statistics of a study: intervals by hand, differences paired by seed, reproducible files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codline.core.files import read_json, write_json
from codline.evaluation import study_statistics
from codline.report import study_figure


def point(arm: str, seed: int, *accuracies: float) -> dict[str, Any]:
    curve = [
        {"cycle": f"c{i}", "labels": 100 * i, "accuracy": accuracy, "loss": 1 - accuracy}
        for i, accuracy in enumerate(accuracies, 1)
    ]
    return {"arm": arm, "seed": seed, "curve": curve}


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


def test_estimate_has_the_t_interval_of_scipy() -> None:
    values = [0.8, 0.83, 0.79, 0.86, 0.81]
    result = study_statistics.estimate(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert result["half"] is not None
    assert (result["mean"] - result["half"], result["mean"] + result["half"]) == pytest.approx((low, high))
    assert result["n"] == 5


def test_estimate_agrees_with_a_hand_computation() -> None:
    result = study_statistics.estimate([1.0, 3.0])  # standard error 1; 12.706 is the t quantile of 1 degree of freedom
    assert result == {"mean": 2.0, "half": pytest.approx(12.7062, abs=1e-4), "n": 2}


def test_seeds_with_other_numbers_of_labels_share_the_row_of_their_cycle() -> None:
    curves = {0: {405: 0.5, 805: 0.7}, 1: {445: 0.6, 845: 0.9}, 2: {440: 0.7}}
    first, second = study_statistics.estimates_by_labels(curves)
    assert (first["labels"], first["mean"], first["n"]) == (430, pytest.approx(0.6), 3)
    assert (second["labels"], second["mean"], second["n"]) == (825, pytest.approx(0.8), 2)


def test_estimate_of_one_seed_has_no_interval() -> None:
    assert study_statistics.estimate([0.7]) == {"mean": 0.7, "half": None, "n": 1}


def test_area_under_curve_is_its_mean_height() -> None:
    assert study_statistics.area_under_curve({100: 0.4, 200: 0.6, 400: 0.8}) == pytest.approx(
        (100 * 0.5 + 200 * 0.7) / 300
    )
    assert study_statistics.area_under_curve({300: 0.9, 100: 0.5}) == pytest.approx(0.7)
    assert study_statistics.area_under_curve({100: 0.4}) == 0.4


def test_summary_gives_the_number_of_seeds_of_every_estimate(study: dict[str, Any]) -> None:
    random, cod, never = study_statistics.summarize_study(study)["arms"]
    assert [row["n"] for row in random["curve"]] == [3, 3]
    assert (random["n"], cod["n"], never["n"]) == (3, 2, 0)
    assert cod["area"] == {"mean": pytest.approx(0.625), "half": pytest.approx(0.025 * 12.7062, abs=1e-4), "n": 2}
    assert never["area"] is None
    assert never["difference"] is None


def test_summary_pairs_differences_by_seed_and_leaves_out_unpaired_seeds(study: dict[str, Any]) -> None:
    random, cod, _ = study_statistics.summarize_study(study)["arms"]
    assert random["difference"] is None
    final, by_labels = cod["difference"]["final"], cod["difference"]["curve"]
    assert final == {"mean": pytest.approx(0.15), "half": pytest.approx(0.05 * 12.7062, abs=1e-4), "n": 2}
    assert [(row["labels"], row["n"]) for row in by_labels] == [(100, 2), (200, 2)]
    assert by_labels[0]["mean"] == pytest.approx(0.0)
    assert cod["difference"]["area"]["mean"] == pytest.approx(0.075)


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests_and_keeps_the_order() -> None:
    # By hand: 3 x 0.01, 2 x 0.02, 1 x 0.03, which may not be below the one before.
    assert study_statistics.correct_by_holm([0.02, 0.03, 0.01]) == pytest.approx([0.04, 0.04, 0.03])
    assert study_statistics.correct_by_holm([0.5, 0.9]) == [1.0, 1.0]
    assert study_statistics.correct_by_holm([]) == []


def test_summary_tests_differences_in_area_paired_by_seed(study: dict[str, Any]) -> None:
    study["points"] += [point("never run", 0, 0.1, 0.2), point("never run", 1, 0.1, 0.1)]
    _, cod, other = (arm["difference"] for arm in study_statistics.summarize_study(study)["arms"])
    assert cod["p"] == pytest.approx(stats.ttest_rel([0.65, 0.6], [0.55, 0.55]).pvalue)
    assert (other["p_holm"], cod["p_holm"]) == (pytest.approx(2 * other["p"]), pytest.approx(2 * other["p"]))
    assert other["p"] < cod["p"]


def test_a_single_seed_is_not_tested(study: dict[str, Any]) -> None:
    study["points"] = [each for each in study["points"] if each["seed"] == 0]
    difference = study_statistics.summarize_study(study)["arms"][1]["difference"]
    assert difference["p"] is None
    assert "p_holm" not in difference


def test_summary_has_no_difference_of_arms_without_a_common_seed(study: dict[str, Any]) -> None:
    study["points"] = [p for p in study["points"] if (p["arm"], p["seed"]) in (("random", 1), ("cod", 0))]
    assert study_statistics.summarize_study(study)["arms"][1]["difference"] is None


def test_results_csv_has_a_row_for_each_arm_seed_and_cycle(study: dict[str, Any]) -> None:
    head, *rest = study_statistics.results_csv(study).splitlines()
    assert head == "study,arm,seed,cycle,labels,accuracy,loss"
    assert rest[0] == "small,random,0,c1,100,0.5,0.5"
    assert len(rest) == 10


def test_study_figure_writes_the_same_bytes_for_the_same_points(study: dict[str, Any], tmp_path: Path) -> None:
    names = ("results.json", "results.csv", "figure.png", "figure.svg")
    first, second = (tmp_path / name for name in "ab")
    for folder in (first, second):
        write_json(folder / "points.json", study)
        study_figure.main(folder, draw=True)
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]
    assert read_json(first / "results.json")["arms"][1]["n"] == 2
    assert "cod (n = 2)" in (first / "figure.svg").read_text()
    assert "never run" not in (first / "figure.svg").read_text()
