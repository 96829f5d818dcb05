"""Faults: how many are tried, what is counted, and the library that makes them happen."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.faults import LONG
from tests.faults.fault_points import FaultPoints, compile_shim
from tests.faults.small_pipeline import SmallPipeline

long_only = pytest.mark.skipif(os.environ.get(LONG) != "all", reason="takes minutes, so only `make faults` runs it")
Case = TypeVar("Case")


class Tally:
    """Cases of a test, by kind. A test tries all of its cases, and fails in the end if one was not held."""

    def __init__(self) -> None:
        self.tried, self.failures = Counter[str](), list[tuple[str, str]]()
        self.is_long = os.environ.get(LONG) == "all"

    def sample(self, cases: Sequence[Case], size: int) -> list[Case]:
        """All cases in the long form, else `size` of them: always the same ones."""
        cases = list(cases)
        if self.is_long or size >= len(cases):
            return cases
        chosen = sorted(random.Random(len(cases)).sample(range(len(cases)), size))
        return [cases[index] for index in chosen]

    def count(self, kind: str, case: str, problem: str) -> None:
        """`problem` is empty if the case was held."""
        self.tried[kind] += 1
        if problem:
            self.failures.append((kind, f"{case}: {problem}"))

    def as_property(self) -> list[tuple[str, int, int]]:
        failed = Counter(kind for kind, _ in self.failures)
        return [(kind, tried, failed[kind]) for kind, tried in self.tried.items()]


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Its counts go to the report of the test's teardown, for the table of `make faults`."""
    tally = Tally()
    request.node.user_properties.append(("faults", []))
    yield tally
    request.node.user_properties.append(("faults", tally.as_property()))
    if tally.failures:
        pytest.fail("\n".join(f"{kind}: {failure}" for kind, failure in tally.failures), pytrace=False)


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultPoints]:
    folder = tmp_path_factory.mktemp("faults")
    points = FaultPoints(compile_shim(folder), folder)
    with points.running_server():
        yield points


@pytest.fixture
def pipeline(faults: FaultPoints, tmp_path: Path) -> SmallPipeline:
    return SmallPipeline(faults, tmp_path / "pipeline")
