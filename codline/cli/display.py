"""What a person sees in the terminal while a campaign runs, and after it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from codline.core.files import read_json
from codline.core.primary_metric import headline
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline

console = Console(highlight=False)
_running: dict[str, float] = {}  # stage -> when it began
_finished: set[str] = set()


def listen(stage: str, outcome: str, seconds: float) -> None:
    """Told by the tasks, from whichever thread they run in."""
    if outcome == "started":
        _running[stage] = time.monotonic()
        return
    _running.pop(stage, None)
    if outcome == "failed":  # it may be tried again
        return
    _finished.add(stage)
    name, _, cycle = stage.partition("@")
    if name == "evaluate":
        metrics = read_json(Pipeline().path("evaluate", "metrics", cycle))
        word, value = headline(metrics)
        console.print(
            f"  {cycle}  {metrics['labels']:>6,} labels  {word} {value:.2%}"
            + ("" if outcome == "ran" else "  (was up to date)")
        )
    elif not console.is_terminal and outcome == "ran":
        console.print(f"  {stage} {seconds:.1f} s")


@contextlib.contextmanager
def live() -> Iterator[Callable[[str], contextlib.AbstractContextManager[None]]]:
    """Two bars: the campaign's stages, and what the running stage says of itself."""
    _finished.clear()
    total = len(Pipeline().names())
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", justify="left"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        console=console,
    ) as bars:
        campaign = bars.add_task("campaign", total=total, count="")
        stage = bars.add_task("", total=None, count="")
        over = threading.Event()

        @contextlib.contextmanager
        def show(first: str) -> Iterator[None]:
            bars.update(stage, description=first)
            drawer = threading.Thread(target=draw, args=(bars, campaign, stage, total, over), daemon=True)
            drawer.start()
            try:
                yield
            finally:
                over.set()
                drawer.join()
                count(bars, campaign, total)  # what ended since the drawer last looked
                bars.update(stage, visible=False)

        yield show


def count(bars: Progress, campaign: TaskID, total: int) -> None:
    finished = len(_finished)
    bars.update(campaign, completed=finished, count=f"{finished} of {total} stages")


def draw(bars: Progress, campaign: TaskID, stage: TaskID, total: int, over: threading.Event) -> None:
    while not over.wait(0.2):
        count(bars, campaign, total)
        for name in list(_running):
            note = state_directory.read_note("progress", name)
            extra = (
                {"total": note["total"], "completed": note["done"], "count": counted(note)}
                if note
                else {"total": None, "count": ""}
            )
            bars.update(stage, description=name, **extra)


def counted(note: dict[str, Any]) -> str:
    curve = note.get("curve")
    loss = f", loss {curve[-1]['task_loss']:.3f}" if curve else ""
    return f"{note['unit']} {note['done']} of {note['total']}{loss}"


def table() -> None:
    """The learning curve."""
    rows = Table(title="Learning curve")
    pipeline = Pipeline()
    for heading in ("cycle", "labels", measure(pipeline), "loss", "calibration error", "Spearman(score, loss)"):
        rows.add_column(heading, justify="left" if heading == "cycle" else "right")
    for cycle in pipeline.cycles:
        metrics = found(pipeline.path("evaluate", "metrics", cycle))
        if metrics is None:
            continue
        diagnostics = found(pipeline.path("diagnose", "diagnostics", cycle)) if cycle in pipeline.queries else None
        spearman = (diagnostics or {}).get("spearman")
        cells = [
            f"{metrics['labels']:,}",
            f"{headline(metrics)[1]:.2%}",
            f"{metrics['loss']:.4f}",
            f"{metrics['calibration_error']:.4f}",
        ]
        rows.add_row(cycle, *cells, "" if spearman is None else f"{spearman:+.2f}")
    console.print(rows)


def status(stale: list[str]) -> None:
    rows = Table(title="Campaign")
    pipeline = Pipeline()
    for heading in ("cycle", "labels", measure(pipeline), "done", "to do"):
        rows.add_column(heading, justify="right" if heading in ("labels", measure(pipeline)) else "left")
    for cycle in pipeline.cycles:
        mine = [name.partition("@")[0] for name in pipeline.names() if name.endswith(f"@{cycle}")]
        waiting = [name for name in mine if f"{name}@{cycle}" in stale]
        metrics = found(pipeline.path("evaluate", "metrics", cycle)) if "evaluate" not in waiting else None
        cells = [f"{metrics['labels']:,}", f"{headline(metrics)[1]:.2%}"] if metrics else ["", ""]
        rows.add_row(cycle, *cells, " ".join(name for name in mine if name not in waiting), " ".join(waiting))
    console.print(rows)
    say("Everything is up to date." if not stale else f"{len(stale)} stages to do: codline run")


def measure(pipeline: Pipeline) -> str:
    """What the campaign's models are measured by."""
    known = (found(pipeline.path("evaluate", "metrics", cycle)) for cycle in pipeline.cycles)
    return next((headline(metrics)[0] for metrics in known if metrics), "accuracy")


def presets(about: dict[str, str]) -> None:
    rows = Table(title="presets")
    for heading in ("name", "what it is"):
        rows.add_column(heading, overflow="fold")
    for name, sentence in about.items():
        rows.add_row(name, sentence)
    console.print(rows)


def found(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    value: dict[str, Any] = read_json(path)
    return value


def farewell(first: str) -> None:
    say(f"{first} Look at {Pipeline().path('report', 'report') / 'index.html'}; `codline ui` shows MLflow and Prefect.")


def say(sentence: str) -> None:
    console.print(sentence, soft_wrap=True)
