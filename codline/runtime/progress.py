"""Progress of long-running work: a note in the state directory, and a progress bar on a terminal."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

from codline.runtime import state_directory

SPEED_SECONDS = 5  # that a stage has to run before its speed means something


@contextmanager
def progress_bar(name: str, unit: str, total: int, workers: int = 1) -> Iterator[Callable[..., None]]:
    """Yield advance(done, **extra), which records the progress of the stage `name`."""
    shared = {"unit": unit, "total": total, "workers": workers}
    started = time.time()
    interactive = sys.stderr.isatty() and not os.environ.get("CODLINE_QUIET")
    with terminal_bar(name, f"{unit}{worker_text(shared)}", total) if interactive else nullcontext(None) as show:

        def advance(done: int, **extra: Any) -> None:
            note = shared | {"done": done, "started": started}
            state_directory.write_note("progress", name, note | extra)
            if show is not None:
                show(done)

        yield advance


def worker_text(note: dict[str, Any]) -> str:
    """The number of worker processes, of a stage that has several."""
    workers = note.get("workers", 1)
    return f" ({workers} workers)" if workers > 1 else ""


def speed_text(note: dict[str, Any]) -> str:
    """Images a second and the time left, of a stage that has run for a few seconds."""
    seconds, done = time.time() - note.get("started", math.inf), note["done"]
    if note["unit"] != "images" or seconds < SPEED_SECONDS or not done:
        return ""
    left = timedelta(seconds=round(seconds / done * (note["total"] - done)))
    return f", {done / seconds:,.0f} a second, {left} left"


@contextmanager
def terminal_bar(name: str, unit: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(name, total=total)
        yield lambda done: display.update(task, completed=done)
