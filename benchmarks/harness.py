"""Contenders in turn, several times over: machines are noisy, so medians of one run are compared, as ratios."""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

Contender = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    case: str
    contender: str
    seconds: float  # median, of the CPU where told so
    ratio: float  # to the reference of the case


def arguments(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    return parser.parse_args()


def compared(cases: dict[str, dict[str, Contender]], rounds: int, clock: Callable[[], float] = time.process_time) -> list[Measured]:
    """The first contender of a case is its reference. Each has a round of warming up that is not counted."""
    found = []
    for case, contenders in cases.items():
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for number in track(range(rounds + 1), case, console=Console(stderr=True), transient=True):
            for name, act in contenders.items():
                began = clock()
                act()
                if number:
                    seconds[name].append(clock() - began)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        reference = next(iter(medians.values()))
        found += [Measured(case, name, value, value / reference) for name, value in medians.items()]
    return found


def shown(title: str, found: list[Measured], json_path: Path | None) -> None:
    rows = Table(title=title)
    for heading in ("case", "contender", "seconds", "ratio"):
        rows.add_column(heading, justify="left" if heading in ("case", "contender") else "right")
    for one in found:
        rows.add_row(one.case, one.contender, f"{one.seconds:.4f}", f"{one.ratio:.3f}")
    Console().print(rows)
    if json_path is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "command": Path(sys.argv[0]).name}
        json_path.write_text(json.dumps({"title": title, **machine, "figures": [vars(one) for one in found]}, indent=1) + "\n", encoding="utf-8")
