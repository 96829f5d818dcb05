"""Benchmarks run, on small sizes, and their contenders agree. How fast they are is for people to read."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from codline.strategies import AnyStrategy
from tests.workspace import REPOSITORY

NAMES = sorted(path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if "def main(" in path.read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_runs(name: str, figures: Any) -> None:
    assert figures(name)


def test_the_time_table_has_every_strategy_and_cod_is_its_measure(figures: Any) -> None:
    rows = {row["contender"]: row for row in figures("sampling_time")}
    assert set(rows) == {kind.model_fields["name"].default for kind in get_args(get_args(AnyStrategy)[0])}
    assert rows["cod"]["ratio"] == 1
