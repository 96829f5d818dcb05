"""Benchmarks run, on small sizes, and their contenders agree. How fast they are is for people to read."""

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
    """What a benchmark found on small sizes."""
    seen: dict[str, list[dict[str, Any]]] = {}
    folder = tmp_path_factory.mktemp("figures")

    def of(name: str) -> list[dict[str, Any]]:
        if name not in seen:
            path: Path = folder / f"{name}.json"
            import_module(f"benchmarks.{name}").main(["--quick", "--json", str(path)])
            seen[name] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return seen[name]

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "orchestration"]
)  # tests/flows/test_orchestration.py has a campaign for it
def test_every_benchmark_runs(name: str, figures: Any) -> None:
    assert figures(name)


@pytest.mark.slow
def test_the_time_table_has_every_strategy_of_ours_and_cod_is_its_measure(figures: Any) -> None:
    rows = {row["contender"]: row for row in figures("sampling_time")}
    assert set(rows) == {kind.model_fields["name"].default for kind in get_args(get_args(AnyStrategy)[0])} - set(
        sampling_time.ABSENT
    )
    assert rows["cod"]["ratio"] == 1


@pytest.mark.slow
def test_k_center_picks_what_the_plain_greedy_picks(figures: Any) -> None:
    rows = [row for row in figures("selection") if row["case"].startswith("k-center") and "seconds" in row]
    assert {row["contender"] for row in rows} >= {"codline", "plain greedy"}
    assert {row["note"] for row in rows} == {"identical picks"}


@pytest.mark.slow
def test_every_way_to_take_the_top_finds_the_same(figures: Any) -> None:
    rows = [row for row in figures("selection") if row["case"].startswith("top")]
    assert len(rows) == 4
    assert {row["note"] for row in rows} == {"identical picks"}


def test_a_library_that_is_not_installed_has_a_row_that_says_so() -> None:
    def absent() -> None:
        harness.installed("no-such-library")

    found = harness.compared({"a case": {"ours": lambda: None, "theirs": absent}}, rounds=1)
    assert found[1].figures() == {"case": "a case", "contender": "theirs", "note": "no-such-library is not installed"}


def test_a_contender_that_takes_long_is_run_once() -> None:
    ticks, runs = iter(range(0, 1000, 10)), list[str]()
    found = harness.compared({"a case": {"slow": lambda: runs.append("slow")}}, rounds=3, clock=lambda: next(ticks))
    assert runs == ["slow"]
    assert (found[0].seconds, found[0].ratio, found[0].note) == (10, 1, "one run")


def test_the_round_of_warming_up_is_not_counted() -> None:
    runs = dict.fromkeys(("ours", "theirs"), 0)
    took = {"ours": [5.0, 1.0, 2.0, 3.0], "theirs": [7.0, 4.0, 4.0, 3.0]}
    now = 0.0

    def act(name: str) -> None:
        nonlocal now
        now += took[name][runs[name]]
        runs[name] += 1

    ours, theirs = harness.compared(
        {"a case": {"ours": lambda: act("ours"), "theirs": lambda: act("theirs")}}, rounds=3, clock=lambda: now
    )
    assert (ours.seconds, ours.ratio, ours.quickest) == (2, 1, 1)
    assert (theirs.seconds, theirs.ratio, theirs.quickest) == (4, 2, 3)


def test_the_quickest_tenth_of_laps_is_compared_and_the_sum_of_a_round() -> None:
    laps = {"ours": [1.0, *[3.0] * 2, *[100.0] * 17], "theirs": [2.0] + [6.0] * 19}
    ours, theirs = harness.alternated({"a case": lambda: laps}, rounds=1)
    assert (ours.seconds, theirs.seconds) == (1707, 116)
    assert (ours.quickest, theirs.quickest) == (1, 2)
    assert theirs.ratio == 116 / 1707


def test_contenders_that_take_turns_have_every_second_counted_once() -> None:
    now, told = 0.0, list[str]()

    def spend(name: str, seconds: float) -> None:
        nonlocal now
        now += seconds
        told.append(name)

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

    assert harness.in_turn(ours, theirs(), lambda: now) == ([1.5, 2.25], [10, 20])
    assert told == ["set-up", "theirs", "ours", "theirs", "ours", "end"]


def test_a_short_case_is_run_until_it_had_enough_time() -> None:
    assert max(harness.turns(2, 0.05)) > 2
    assert list(harness.turns(2, 0)) == [0, 1, 2]
    assert list(harness.turns(0, 60)) == [0]


def test_memory_is_seen_at_its_peak() -> None:
    peak = harness.arrays_peak(lambda: np.ones(10_000_000).sum())
    assert peak is not None
    assert 80e6 <= peak < 81e6


def test_the_page_shows_what_was_found_and_keeps_what_people_wrote() -> None:
    rows = [
        {"case": "a", "contender": "ours", "seconds": 1.0, "ratio": 1.0},
        {"case": "a", "contender": "theirs", "seconds": 2.5, "ratio": 2.5, "note": "one run"},
    ]
    once = page.written(
        f"# Speed\n\n{page.BEGIN}\nold\n{page.END}\n\n## Past it\n", [{"title": "All", "figures": rows}]
    )
    assert once.startswith("# Speed\n\n")
    assert once.endswith(f"{page.END}\n\n## Past it\n")
    assert "old" not in once
    assert "| a | ours | 1.000 | 1.00 |  |\n|  | theirs | 2.500 | 2.50 | one run |" in once
    assert page.written(once, [{"title": "All", "figures": rows}]) == once


def test_make_bench_runs_every_benchmark() -> None:
    line = next(
        line
        for line in (REPOSITORY / "Makefile").read_text(encoding="utf-8").splitlines()
        if line.startswith("BENCHMARKS")
    )
    assert sorted(line.split()[2:]) == NAMES
