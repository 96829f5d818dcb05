"""Progress of long work: a bar where a person watches, a note in the scratch corner for everyone else."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from codline.runtime import state_directory


@contextmanager
def bar(name: str, unit: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield advance(done, **extra)."""
    shown = sys.stderr.isatty() and not os.environ.get("CODLINE_QUIET")
    if not shown:
        yield lambda done, **extra: state_directory.note(
            "progress", name, {"unit": unit, "done": done, "total": total} | extra
        )
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(name, total=total)

        def advance(done: int, **extra: Any) -> None:
            state_directory.note("progress", name, {"unit": unit, "done": done, "total": total} | extra)
            display.update(task, completed=done)

        yield advance
