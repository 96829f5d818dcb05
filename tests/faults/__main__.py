"""Tries every fault and prints one table: kind, tried, held, failed.

python -m tests.faults [words for pytest, such as -k stage]
"""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.faults import LONG

HERE = Path(__file__).parent
FAULTS = (HERE, HERE.parent / "flows/test_other_machines.py")  # the second: machines that are lost


class FaultTable:
    """A pytest plug-in that adds up what the tests have tried. Tests without a tally count as one case each."""

    def __init__(self) -> None:
        self.tried, self.failed, self.skipped = Counter[str](), Counter[str](), dict[str, str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        counts = [value for name, value in report.user_properties if name == "faults"]
        kind = Path(report.location[0]).stem.removeprefix("test_").replace("_", " ")
        if report.skipped:
            self.skipped[kind] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.when == "call" and (report.failed or not counts):
            self.add(kind, 1, int(report.failed))
        elif report.when == "teardown":
            for name, tried, failed in (count for several in counts for count in several):
                self.add(name, tried, failed)

    def add(self, kind: str, tried: int, failed: int) -> None:
        self.tried[kind] += tried
        self.failed[kind] += failed

    def print(self) -> None:
        table = Table("kind", title="Faults")
        for heading in ("tried", "held", "failed"):
            table.add_column(heading, justify="right")
        for kind, tried in self.tried.items():
            table.add_row(kind, f"{tried}", f"{tried - self.failed[kind]}", f"{self.failed[kind]}")
        total, failed = self.tried.total(), self.failed.total()
        table.add_section()
        table.add_row("all", f"{total}", f"{total - failed}", f"{failed}")
        for kind, reason in self.skipped.items():
            table.add_row(f"{kind}: skipped ({reason})", "0", "0", "0")
        Console(width=100).print(table)


def main() -> int:
    os.environ[LONG] = "all"  # before the tests are imported
    table = FaultTable()
    code = pytest.main([*map(str, FAULTS), *sys.argv[1:]], plugins=[table])
    table.print()
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
