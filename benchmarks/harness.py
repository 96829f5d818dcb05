"""Compares contenders by running them in turn, round after round; results are ratios, since machines are noisy."""

import argparse
import json
import platform
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
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
Laps = list[float]  # seconds of each step of a contender that takes turns with the others of its case
LONG_SECONDS = 8  # a contender that takes longer is run only once
MEMORY_POLL_SECONDS = 0.02
FILE_WIDTH = 140  # columns of a table that is not printed to a terminal
FORMATS = {
    "case": "",
    "contender": "",
    "seconds": ",.4f",
    "ratio": ",.3f",
    "quickest": ",.3f",
    "memory": ",.0f",
    "note": "",
}
HEADINGS = {"memory": "peak MB"}


class Unavailable(Exception):  # noqa: N818 (not an error: the table shows the reason)
    """Raised by a contender that cannot run on this machine."""


@dataclass(frozen=True)
class Measurement:
    case: str
    contender: str
    seconds: float | None = None  # median; CPU time unless stated otherwise
    ratio: float | None = None  # to the reference of the case
    memory: int | None = None  # peak bytes, in addition to those in use before
    note: str = ""
    quickest: float | None = None  # ratio of the fastest tenths, since other processes can only add time
    answer: object = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "answer" and value not in (None, "")}


def argument_parser(description: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds to take medians of, after a warm-up round")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see whether it runs, not how fast")
    wall = "measure wall-clock time instead of CPU time; for an otherwise idle machine"
    parser.add_argument("--wall", action="store_true", help=wall)
    parser.add_argument("--json", type=lambda path: Path(path).absolute(), help="also write the results to this file")
    return parser


def counted_rounds(arguments: argparse.Namespace) -> int:
    return 0 if arguments.quick else arguments.rounds


def chosen_clock(arguments: argparse.Namespace) -> Clock:
    return time.perf_counter if arguments.wall else time.process_time


def compare(
    cases: dict[str, dict[str, Contender]],
    rounds: int,
    clock: Clock = time.process_time,
    *,
    long_seconds: float = LONG_SECONDS,
) -> list[Measurement]:
    """Measure the contenders of each case in a single thread, after a warm-up round.

    The first contender of a case is its reference. A contender that takes longer than `long_seconds` is run once.
    """
    measurements = list[Measurement]()
    with threadpool_limits(1):
        for case, contenders in cases.items():
            measurements += measure_case(case, contenders, round_numbers(rounds), clock, long_seconds)
    return measurements


def compare_interleaved(
    cases: dict[str, Callable[[], dict[str, Laps]]], rounds: int, *, min_seconds: float = 0.0
) -> list[Measurement]:
    """As compare(), for contenders that take turns at every step of a round, so that a slow second slows all of them.

    Rounds continue until a case has run for `min_seconds`.
    """
    measurements = list[Measurement]()
    with threadpool_limits(1):
        for case, run_round in cases.items():
            results = [run_round() for _ in with_progress_bar(case, round_numbers(rounds, min_seconds))]
            results = results[1:] or results  # without the warm-up
            laps = {name: [*chain.from_iterable(result[name] for result in results)] for name in results[0]}
            totals = {name: [sum(result[name]) for result in results] for name in laps}
            reference = next(iter(laps))
            for name in laps:
                seconds, ratio = median_and_ratio(totals[name], totals[reference])
                quickest = fastest_tenth_ratio(laps[name], laps[reference])
                measurements.append(Measurement(case, name, seconds, ratio, quickest=quickest))
    return measurements


def interleave(run: Callable[[Callable[[], None]], object], other: Iterator[object], clock: Clock) -> tuple[Laps, Laps]:
    """Run two contenders in turn and return the laps of each.

    `run` gets a function to call at the start of each of its laps, which advances `other` by one lap.
    Time that `run` spends before its first lap is part of that lap.
    """
    laps, other_laps, began = [0.0], Laps(), clock()

    def start_lap() -> None:
        nonlocal began
        laps[-1] += clock() - began
        if other_laps:
            laps.append(0.0)
        start = clock()
        next(other)
        began = clock()
        other_laps.append(began - start)

    run(start_lap)
    laps[-1] += clock() - began
    return laps, other_laps


def with_progress_bar(case: str, rounds: Iterable[int]) -> Iterable[int]:
    return track(rounds, case, console=Console(stderr=True), transient=True)


def round_numbers(rounds: int, min_seconds: float = 0.0) -> Iterator[int]:
    """Round 0 is the warm-up."""
    number, began = 0, time.perf_counter()
    while number <= rounds or (rounds and time.perf_counter() - began < min_seconds):
        yield number
        number += 1


def measure_case(
    case: str, contenders: dict[str, Contender], rounds: Iterable[int], clock: Clock, long_seconds: float
) -> list[Measurement]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    notes, answers, running = dict.fromkeys(contenders, ""), dict[str, object](), dict(contenders)
    for number in with_progress_bar(case, rounds):
        for name, run in list(running.items())[:: -1 if number % 2 else 1]:  # alternate who goes first
            began = clock()
            try:
                answers[name] = run()
            except Unavailable as error:
                notes[name] = str(error)
                del running[name]
                continue
            seconds[name].append(clock() - began)
            if seconds[name][-1] > long_seconds:
                del running[name]
                notes[name] = "one run" if len(seconds[name]) == 1 else ""
    seconds = {name: times[1:] or times for name, times in seconds.items()}  # without the warm-up
    reference = seconds[next(iter(contenders))]
    return [
        Measurement(
            case,
            name,
            *median_and_ratio(times, reference),
            quickest=fastest_tenth_ratio(times, reference),
            note=notes[name],
            answer=answers.get(name),
        )
        for name, times in seconds.items()
    ]


def fastest_tenth_ratio(times: list[float], reference: list[float]) -> float | None:
    ours, theirs = sorted(times), sorted(reference)
    if min(len(ours), len(theirs)) < 2 or not all(theirs):
        return None
    return ours[len(ours) // 10] / theirs[len(theirs) // 10]


def median_and_ratio(times: list[float], reference: list[float]) -> tuple[float | None, float | None]:
    """Median of the seconds, and of the ratios within each round, where a temporary slowdown affects both."""
    if not times or not reference:
        return statistics.median(times) if times else None, None
    if len(times) == len(reference):
        pairs = list(zip(times, reference, strict=True))
    else:
        pairs = [(statistics.median(times), statistics.median(reference))]
    return statistics.median(times), statistics.median(one / other for one, other in pairs) if all(reference) else None


def add_remarks(measurements: list[Measurement], remark: Callable[[Any, Any], str]) -> list[Measurement]:
    """Add remark(answer of the case's reference, own answer) to every measurement's note."""
    references = {row.case: row.answer for row in reversed(measurements)}
    notes = [remark(references[row.case], row.answer) if row.answer is not None else "" for row in measurements]
    return [
        replace(row, note="; ".join(part for part in (row.note, note) if part))
        for row, note in zip(measurements, notes, strict=True)
    ]


def peak_array_memory(run: Contender) -> int | None:
    """Peak bytes allocated by Python and numpy; allocations of other libraries are not included."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    except Unavailable:
        return None
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class ProcessMeasurement:
    """Wall-clock seconds, and bytes of memory."""

    seconds: float
    resident_before: int  # of the interpreter and imported libraries
    peak_resident: int
    peak_anonymous: int  # without the pages of memory-mapped files
    answer: Any = None


def run_in_subprocess(function: Callable[..., Any], *arguments: Any) -> ProcessMeasurement:
    """Run a module-level function in a new process, so that its memory can be told from the caller's. Linux only."""
    if sys.platform != "linux":
        raise Unavailable("resident memory is read from Linux's /proc")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure_process, function, *arguments).result()


def measure_process(function: Callable[..., Any], *arguments: Any) -> ProcessMeasurement:
    resident_before, is_done, anonymous = process_status("VmHWM"), threading.Event(), [process_status("RssAnon")]

    def poll_memory() -> None:
        while not is_done.wait(MEMORY_POLL_SECONDS):
            anonymous.append(process_status("RssAnon"))

    poller = threading.Thread(target=poll_memory)
    poller.start()
    began = time.perf_counter()
    try:
        answer = function(*arguments)
    finally:
        seconds = time.perf_counter() - began
        is_done.set()
        poller.join()
    return ProcessMeasurement(seconds, resident_before, process_status("VmHWM"), max(anonymous), answer)


def process_status(name: str) -> int:
    """A field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def require_package(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError as error:
        raise Unavailable(f"{package} is not installed") from error


def report(title: str, measurements: list[Measurement], json_path: Path | None) -> None:
    """Print a table, and write a JSON file if a path is given."""
    report_each(title, [measurements], json_path)


def report_each(title: str, parts: Iterable[list[Measurement]], json_path: Path | None) -> None:
    """Print a table for each part as soon as it is measured; the JSON file holds all parts so far."""
    measurements = list[Measurement]()
    for part in parts:
        measurements += part
        print_table(title, part)
        if json_path is not None:
            write_results(title, measurements, json_path)


def write_results(title: str, measurements: list[Measurement], path: Path) -> None:
    machine = {"python": platform.python_version(), "machine": platform.machine(), "command": Path(sys.argv[0]).name}
    results = {"title": title, **machine, "figures": [row.as_dict() for row in measurements]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def print_table(title: str, measurements: list[Measurement]) -> None:
    headings, rows = table_cells([row.as_dict() for row in measurements], FORMATS)
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("case", "contender", "note") else "right")
    for row in rows:
        table.add_row(*row)
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(table)


def table_cells(rows: list[dict[str, Any]], formats: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Headings and formatted cells of the columns that hold any value. Memory is given in MB."""
    names = [name for name in formats if any(name in row for row in rows)]
    scaled = [row | {"memory": row["memory"] / 1e6} if "memory" in row else row for row in rows]
    cells = [[format(row[name], formats[name]) if name in row else "" for name in names] for row in scaled]
    return [HEADINGS.get(name, name) for name in names], cells
