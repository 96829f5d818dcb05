"""Terminal output of a study: a table of arms against numbers of labels, and the progress of its points."""

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codline.cli.display import console
from codline.core.errors import DataError, UserError
from codline.core.files import read_json
from codline.orchestration import study_plan
from codline.orchestration.learning_curve import evaluated_metrics
from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_plan import AT_POOL, StudyPlan
from codline.runtime.pipeline import Pipeline

COLUMN_WIDTH = 16  # characters of "+84.12 ± 1.33" with its borders


def print_results(plan: StudyPlan) -> None:
    if (plan.folder / "results.json").exists():
        console.print(results_table(plan))


def results_table(plan: StudyPlan) -> Table:
    arms = (read_if_exists(plan, "results.json") or {"arms": []})["arms"]
    counts = select_label_counts(
        sorted({row["labels"] for arm in arms for row in arm["curve"]}),
        longest_arm=max((len(arm["arm"]) for arm in arms), default=0),
    )
    reference = plan.study.reference_arm
    caption = (
        f"Accuracy in %: mean ± 95% t-interval over n seeds. Δ: difference from {reference}, paired by seed. "
        "p: of Δ area, by a t-test, Holm-corrected for the number of arms."
    )
    table = Table(title=plan.study.title, caption=caption)
    table.add_column("arm")
    for heading in ("n", *(f"{count:,} labels" for count in counts), "area", "Δ area", "p", "Δ last", "n of Δ"):
        table.add_column(heading, justify="right")
    for arm in arms:
        by_count = {row["labels"]: row for row in arm["curve"]}
        difference = arm["difference"] or {}
        table.add_row(
            arm["arm"],
            str(arm["n"]),
            *(format_estimate(by_count.get(count), arm["n"]) for count in counts),
            format_estimate(arm["area"]),
            format_estimate(difference.get("area"), sign="+"),
            f"{difference['p_holm']:.3f}" if "p_holm" in difference else "",
            format_estimate(difference.get("final"), sign="+"),
            str(difference["area"]["n"]) if difference else "",
        )
    return table


def select_label_counts(counts: list[int], longest_arm: int) -> list[int]:
    """As many columns as the terminal has room for, evenly spread and with the last; results.csv has all of them."""
    room = max(1, (console.width - longest_arm - 3 - 6 - 8 - 4 * COLUMN_WIDTH) // COLUMN_WIDTH)
    if len(counts) <= room:
        return counts
    if room == 1:
        return counts[-1:]
    return [counts[-1 - (len(counts) - 1) * i // (room - 1)] for i in reversed(range(room))]


def format_estimate(value: dict[str, Any] | None, n: int | None = None, sign: str = "") -> str:
    """An estimate in per cent, with its number of seeds if that is not the row's `n`."""
    if value is None:
        return ""
    half_width = "" if value["half"] is None else f" ± {100 * value['half']:.2f}"
    seeds = f" (n={value['n']})" if n not in (None, value["n"]) else ""
    return f"{100 * value['mean']:{sign}.2f}{half_width}{seeds}"


def read_if_exists(plan: StudyPlan, name: str) -> dict[str, Any] | None:
    path = plan.folder / name
    content: dict[str, Any] | None = read_json(path) if path.exists() else None
    return content


def points_text(plan: StudyPlan) -> Text:
    """How many points are done, which have failed, and what the running ones are doing."""
    states = read_if_exists(plan, "states.json") or {}
    done = sum(state == "done" for state in states.values())
    failed = [f", {point.title} failed" for point in plan.points if states.get(point.name) == "failed"]
    running = [point for point in plan.points if states.get(point.name) == "running"]
    lines = [f"{done} of {len(plan.points)} points done{''.join(failed)}"]
    lines += [f"  {point.title}: {point_progress(plan, point.name)}" for point in running]
    at_pool = [point for point in plan.points if AT_POOL in states.get(point.name, "")]
    lines += [f"  {point.title}: {states[point.name]}" for point in at_pool]
    return Text("\n".join(lines))


def point_progress(plan: StudyPlan, name: str) -> str:
    """The number of evaluated cycles of a running point, and the stage that reports progress."""
    worktree = plan.folder / name
    with contextlib.suppress(DataError, UserError):
        pipeline = read_pipeline(worktree)
        notes = sorted((worktree / ".codline/progress").glob("*.json"))
        stage = f", {notes[0].stem}" if notes else ""
        return f"{len(evaluated_metrics(pipeline))} of {len(pipeline.cycles)} cycles{stage}"
    return "starting"


@cache
def read_pipeline(worktree: Path) -> Pipeline:
    """Reading dvc.yaml and params.yaml takes a tenth of a second."""
    return Pipeline(worktree)


class StudyDisplay:
    """Rendered anew from the study's files at every refresh."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan = plan

    def __rich__(self) -> Group:
        return Group(results_table(self.plan), points_text(self.plan))


def print_state(point: StudyPoint, state: str) -> None:
    console.print(f"  {point.title}: {state}")


@contextlib.contextmanager
def live_display(plan: StudyPlan) -> Iterator[None]:
    """Show results and running points while the study runs; one line per change if the output is not a terminal."""
    if not console.is_terminal:
        study_plan.listeners.append(print_state)
        try:
            yield
        finally:
            study_plan.listeners.remove(print_state)
        return
    with Live(StudyDisplay(plan), console=console, refresh_per_second=1, transient=True):
        yield
