"""Benchmarks run on small sizes, and their contenders agree; speed is not tested."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from benchmarks import harness, page, sampling_time
from codline.strategies import AnyStrategy
from tests.workspace import REPOSITORY

NAMES = sorted(
    path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if "def main(" in path.read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """Results of a benchmark on small sizes, by its name; each runs once."""
    results: dict[str, list[dict[str, Any]]] = {}
    folder = tmp_path_factory.mktemp("figures")

    def run_benchmark(name: str) -> list[dict[str, Any]]:
        if name not in results:
            path: Path = folder / f"{name}.json"
            import_module(f"benchmarks.{name}").main(["--quick", "--json", str(path)])
            results[name] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return results[name]

    return run_benchmark


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*NAMES} - {"orchestration", "studies"}))  # they take minutes
def test_every_benchmark_runs(name: str, figures: Any) -> None:
    assert figures(name)


@pytest.mark.slow
def test_sampling_time_covers_every_strategy_and_has_cod_as_its_reference(figures: Any) -> None:
    rows = {row["contender"]: row for row in figures("sampling_time")}
    strategies = {kind.model_fields["name"].default for kind in get_args(get_args(AnyStrategy)[0])}
    assert set(rows) == strategies - set(sampling_time.ABSENT)
    assert rows["cod"]["ratio"] == 1


@pytest.mark.slow
def test_k_center_picks_what_the_plain_greedy_picks(figures: Any) -> None:
    rows = [row for row in figures("selection") if row["case"].startswith("k-center") and "seconds" in row]
    assert {row["contender"] for row in rows} >= {"codline", "plain greedy"}
    assert {row["note"] for row in rows} == {"identical picks"}


@pytest.mark.slow
def test_selection_contenders_pick_the_same_top(figures: Any) -> None:
    rows = [row for row in figures("selection") if row["case"].startswith("top")]
    assert len(rows) == 4
    assert {row["note"] for row in rows} == {"identical picks"}


@pytest.mark.slow
def test_memory_of_batch_strategies_is_near_its_estimate(figures: Any) -> None:
    ratios = {row["case"]: row["ratio"] for row in figures("strategy_memory")}
    assert ratios.keys() == {"core_set", "badge"}
    assert all(0.5 < ratio < 2 for ratio in ratios.values()), ratios


def test_compare_notes_a_library_that_is_not_installed() -> None:
    def absent() -> None:
        harness.require_package("no-such-library")

    measurements = harness.compare({"a case": {"ours": lambda: None, "theirs": absent}}, rounds=1)
    assert measurements[1].as_dict() == {
        "case": "a case",
        "contender": "theirs",
        "note": "no-such-library is not installed",
    }


def test_compare_runs_a_slow_contender_once() -> None:
    ticks, runs = iter(range(0, 1000, 10)), list[str]()
    measurements = harness.compare(
        {"a case": {"slow": lambda: runs.append("slow")}}, rounds=3, clock=lambda: next(ticks)
    )
    assert runs == ["slow"]
    assert (measurements[0].seconds, measurements[0].ratio, measurements[0].note) == (10, 1, "one run")


def test_compare_does_not_count_the_warm_up_round() -> None:
    runs = dict.fromkeys(("ours", "theirs"), 0)
    took = {"ours": [5.0, 1.0, 2.0, 3.0], "theirs": [7.0, 4.0, 4.0, 3.0]}
    now = 0.0

    def run(name: str) -> None:
        nonlocal now
        now += took[name][runs[name]]
        runs[name] += 1

    ours, theirs = harness.compare(
        {"a case": {"ours": lambda: run("ours"), "theirs": lambda: run("theirs")}}, rounds=3, clock=lambda: now
    )
    assert (ours.seconds, ours.ratio, ours.quickest) == (2, 1, 1)
    assert (theirs.seconds, theirs.ratio, theirs.quickest) == (4, 2, 3)


def test_compare_interleaved_compares_sums_of_rounds_and_the_fastest_tenth_of_laps() -> None:
    laps = {"ours": [1.0, *[3.0] * 2, *[100.0] * 17], "theirs": [2.0] + [6.0] * 19}
    ours, theirs = harness.compare_interleaved({"a case": lambda: laps}, rounds=1)
    assert (ours.seconds, theirs.seconds) == (1707, 116)
    assert (ours.quickest, theirs.quickest) == (1, 2)
    assert theirs.ratio == 116 / 1707


def test_interleave_counts_every_second_once() -> None:
    now, order = 0.0, list[str]()

    def spend(name: str, seconds: float) -> None:
        nonlocal now
        now += seconds
        order.append(name)

    def ours(lap: Callable[[], None]) -> None:
        spend("set-up", 0.5)
        for seconds in (1.0, 2.0):
            lap()
            spend("ours", seconds)
        spend("end", 0.25)

    def theirs() -> Iterator[None]:
        for seconds in (10.0, 20.0):
            spend("theirs", seconds)
            yield

    assert harness.interleave(ours, theirs(), lambda: now) == ([1.5, 2.25], [10, 20])
    assert order == ["set-up", "theirs", "ours", "theirs", "ours", "end"]


def test_round_numbers_continue_until_the_minimal_time() -> None:
    assert max(harness.round_numbers(2, 0.05)) > 2
    assert list(harness.round_numbers(2, 0)) == [0, 1, 2]
    assert list(harness.round_numbers(0, 60)) == [0]


def test_peak_array_memory_is_the_peak() -> None:
    peak = harness.peak_array_memory(lambda: np.ones(10_000_000).sum())
    assert peak is not None
    assert 80e6 <= peak < 81e6


def test_update_page_replaces_the_tables_and_nothing_else() -> None:
    rows = [
        {"case": "a", "contender": "ours", "seconds": 1.0, "ratio": 1.0},
        {"case": "a", "contender": "theirs", "seconds": 2.5, "ratio": 2.5, "note": "one run"},
    ]
    text = f"# Speed\n\n{page.BEGIN}\nold\n{page.END}\n\n## Past it\n"
    once = page.update_page(text, [{"title": "All", "figures": rows}])
    assert once.startswith("# Speed\n\n")
    assert once.endswith(f"{page.END}\n\n## Past it\n")
    assert "old" not in once
    assert "| a | ours | 1.000 | 1.00 |  |\n|  | theirs | 2.500 | 2.50 | one run |" in once
    assert page.update_page(once, [{"title": "All", "figures": rows}]) == once


def test_make_bench_runs_every_benchmark() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    line = next(line for line in makefile.splitlines() if line.startswith("BENCHMARKS"))
    assert sorted(line.split()[2:]) == NAMES
