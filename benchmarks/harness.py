"""Contenders in turn, several times over: machines are noisy, so medians of one run are compared, as ratios."""

import argparse
import json
import platform
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

Contender = Callable[[], object]
Clock = Callable[[], float]
Laps = list[float]  # seconds of a contender's steps, in which it took turns with the others of its case
LONG = 8  # seconds of a contender that is run once only
LOOK = 0.02  # seconds between two looks at memory
WIDE = 140  # columns of a table that goes into a file


class Missing(Exception):  # noqa: N818 (no error: the row says so)
    """What a contender raises that cannot run here: why."""


@dataclass(frozen=True)
class Measured:
    case: str
    contender: str
    seconds: float | None = None  # median, of the CPU unless told otherwise
    ratio: float | None = None  # to the reference of the case
    memory: int | None = None  # bytes, at the peak, on top of what was there before
    note: str = ""
    quickest: float | None = (
        None  # ratio of the quickest tenths of rounds, or of laps: neighbours on a machine only ever add time
    )
    answer: object = field(default=None, repr=False, compare=False)

    def figures(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "answer" and value not in (None, "")}


def parser(about: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=about)
    found.add_argument(
        "--rounds", type=int, default=rounds, help="medians are of so many; one before them is not counted"
    )
    found.add_argument("--quick", action="store_true", help="small sizes: to see whether it runs, not how fast")
    found.add_argument(
        "--wall",
        action="store_true",
        help="seconds on the clock instead of the CPU's: for a machine with nothing else to do",
    )
    found.add_argument("--json", type=lambda path: Path(path).absolute(), help="write the figures there, too")
    return found


def rounds(asked: argparse.Namespace) -> int:
    return 0 if asked.quick else asked.rounds


def clock(asked: argparse.Namespace) -> Clock:
    return time.perf_counter if asked.wall else time.process_time


def compared(
    cases: dict[str, dict[str, Contender]], rounds: int, clock: Clock = time.process_time, *, long: float = LONG
) -> list[Measured]:
    """The first contender of a case is its reference. Each has a round of warming up that is not counted, but for those that take long. In one thread."""
    with threadpool_limits(1):
        return [
            row for case, contenders in cases.items() for row in raced(case, contenders, turns(rounds), clock, long)
        ]


def alternated(cases: dict[str, Callable[[], dict[str, Laps]]], rounds: int, *, enough: float = 0.0) -> list[Measured]:
    """As compared(), of cases whose contenders take turns at every step of a round: what slows a machine down for a second slows all of them.

    There are more rounds than asked for until a case has had `enough` seconds.
    """
    found = list[Measured]()
    with threadpool_limits(1):
        for case, act in cases.items():
            laps = [act() for _ in shown_turns(case, turns(rounds, enough))]
            del laps[: -max(len(laps) - 1, 1)]  # the round of warming up, where there is another
            every = {name: [*chain.from_iterable(one[name] for one in laps)] for name in laps[0]}
            sums = {name: [sum(one[name]) for one in laps] for name in every}
            first = next(iter(every))
            found += [
                Measured(case, name, *medians(sums[name], sums[first]), quickest=least(every[name], every[first]))
                for name in every
            ]
    return found


def in_turn(act: Callable[[Callable[[], None]], object], other: Iterator[object], clock: Clock) -> tuple[Laps, Laps]:
    """The laps of `act`, which calls what it is given as each begins, and of `other`, which then has one, too; what comes before the first is part of it."""
    ours, theirs, began = [0.0], Laps(), clock()

    def lap() -> None:
        nonlocal began
        ours[-1] += clock() - began
        if theirs:
            ours.append(0.0)
        start = clock()
        next(other)
        began = clock()
        theirs.append(began - start)

    act(lap)
    ours[-1] += clock() - began
    return ours, theirs


def shown_turns(case: str, turns: Iterable[int]) -> Iterable[int]:
    return track(turns, case, console=Console(stderr=True), transient=True)


def turns(rounds: int, enough: float = 0.0) -> Iterator[int]:
    number, began = 0, time.perf_counter()
    while number <= rounds or (rounds and time.perf_counter() - began < enough):
        yield number
        number += 1


def raced(
    case: str, contenders: dict[str, Contender], turns: Iterable[int], clock: Clock, long: float
) -> list[Measured]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    notes, answers, running = dict.fromkeys(contenders, ""), dict[str, object](), dict(contenders)
    for number in shown_turns(case, turns):
        for name, act in list(running.items())[:: -1 if number % 2 else 1]:  # now this one first, now that
            began = clock()
            try:
                answers[name] = act()
            except Missing as error:
                notes[name] = str(error)
                del running[name]
                continue
            seconds[name].append(clock() - began)
            if seconds[name][-1] > long:
                del running[name]
    for name, times in seconds.items():
        if len(times) == 1 and times[0] > long:
            notes[name] = "one run"
        del times[: -max(len(times) - 1, 1)]  # the round of warming up, where there is another
    reference = next(iter(contenders))
    return [
        Measured(
            case,
            name,
            *medians(times, seconds[reference]),
            quickest=least(times, seconds[reference]),
            note=notes[name],
            answer=answers.get(name),
        )
        for name, times in seconds.items()
    ]


def least(times: list[float], reference: list[float]) -> float | None:
    ours, theirs = sorted(times), sorted(reference)
    if min(len(ours), len(theirs)) < 2 or not all(theirs):
        return None
    return ours[len(ours) // 10] / theirs[len(theirs) // 10]


def medians(times: list[float], reference: list[float]) -> tuple[float | None, float | None]:
    """Of seconds, and of the ratios within a round: what slows a machine down for a while slows both."""
    if not times or not reference:
        return statistics.median(times) if times else None, None
    pairs = (
        [*zip(times, reference, strict=True)]
        if len(times) == len(reference)
        else [(statistics.median(times), statistics.median(reference))]
    )
    return statistics.median(times), statistics.median(one / other for one, other in pairs) if all(reference) else None


def remarked(found: list[Measured], remark: Callable[[Any, Any], str]) -> list[Measured]:
    """With a remark on each answer, seen beside that of the reference of its case."""
    references = {row.case: row.answer for row in reversed(found)}
    notes = [remark(references[row.case], row.answer) if row.answer is not None else "" for row in found]
    return [
        replace(row, note="; ".join(part for part in (row.note, note) if part))
        for row, note in zip(found, notes, strict=True)
    ]


def arrays_peak(act: Contender) -> int | None:
    """Bytes of Python's and numpy's memory at the peak. What other libraries allocate is not seen."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    except Missing:
        return None
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Apart:
    seconds: float
    before: int  # bytes resident, of libraries and interpreter
    resident: int  # at the peak
    own: int  # at the peak, without the pages of mapped files
    answer: Any = None


def apart(act: Callable[..., Any], *arguments: Any) -> Apart:
    """A function of a module, run in a process of its own: what it kept in memory is then its own. Linux alone says so."""
    if sys.platform != "linux":
        raise Missing("resident memory is read from Linux's /proc")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(alone, act, *arguments).result()


def alone(act: Callable[..., Any], *arguments: Any) -> Apart:
    before, done, own = status("VmHWM"), threading.Event(), [status("RssAnon")]

    def look() -> None:
        while not done.wait(LOOK):
            own.append(status("RssAnon"))

    watcher = threading.Thread(target=look)
    watcher.start()
    began = time.perf_counter()
    try:
        answer = act(*arguments)
    finally:
        took = time.perf_counter() - began
        done.set()
        watcher.join()
    return Apart(took, before, status("VmHWM"), max(own), answer)


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError as error:
        raise Missing(f"{package} is not installed") from error


def told(title: str, found: list[Measured], json_path: Path | None) -> None:
    """The table, and the file if one is asked for."""
    told_each(title, [found], json_path)


def kept(title: str, found: list[Measured], json_path: Path | None) -> None:
    if json_path is not None:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "command": Path(sys.argv[0]).name,
        }
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(
            json.dumps({"title": title, **machine, "figures": [one.figures() for one in found]}, indent=1) + "\n",
            encoding="utf-8",
        )


def told_each(title: str, parts: Iterable[list[Measured]], json_path: Path | None) -> None:
    """A table for each part as soon as it is there; the file has all that are."""
    found = list[Measured]()
    for part in parts:
        found += part
        shown(title, part)
        kept(title, found, json_path)


def shown(title: str, found: list[Measured]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    rows = Table(title=title)
    quickest = any(one.quickest is not None for one in found)
    memory, notes = any(one.memory is not None for one in found), any(one.note for one in found)
    columns = [
        "case",
        "contender",
        "seconds",
        "ratio",
        *["quickest"] * quickest,
        *["peak MB"] * memory,
        *["note"] * notes,
    ]
    for heading in columns:
        rows.add_column(heading, justify="left" if heading in ("case", "contender", "note") else "right")
    for one in found:
        cells = [
            one.case,
            one.contender,
            number(one.seconds, 4),
            number(one.ratio, 3),
            *[number(one.quickest, 3)] * quickest,
        ]
        rows.add_row(*cells, *[number(one.memory and one.memory / 1e6, 0)] * memory, *[one.note] * notes)
    console.print(rows)


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
