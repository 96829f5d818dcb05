"""What a person sees in the terminal of a study: arms against labels, and what its points are doing."""

import contextlib
from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codline.cli.display import console
from codline.core.errors import DataError
from codline.core.files import read_json
from codline.runtime.pipeline import Pipeline
from flows import study as studies
from flows.study import Plan

CELL = 16  # characters of a column: "+84.12 ± 1.33", and its borders


def final(plan: Plan) -> None:
    if noted(plan, "results.json"):
        console.print(results(plan))


def results(plan: Plan) -> Table:
    found = noted(plan, "results.json") or {"arms": []}
    counts = fitting(
        sorted({row["labels"] for arm in found["arms"] for row in arm["curve"]}),
        max((len(arm["arm"]) for arm in found["arms"]), default=0),
    )
    table = Table(
        title=plan.study.title,
        caption=f"Accuracy in %: mean ± 95% t-interval over n seeds. Δ: paired by seed, to {plan.study.compared}.",
    )
    table.add_column("arm")
    for heading in ("n", *(f"{count:,} labels" for count in counts), "area", "Δ area", "Δ last", "n of Δ"):
        table.add_column(heading, justify="right")
    for arm in found["arms"]:
        at = {row["labels"]: row for row in arm["curve"]}
        change = arm["difference"] or {}
        cells = [shown(at.get(count), arm["n"]) for count in counts]
        gaps = [
            shown(change.get("area"), sign="+"),
            shown(change.get("final"), sign="+"),
            str(change["area"]["n"]) if change else "",
        ]
        table.add_row(arm["arm"], str(arm["n"]), *cells, shown(arm["area"]), *gaps)
    return table


def fitting(counts: list[int], longest: int) -> list[int]:
    """As many numbers of labels as the terminal has room for, evenly spread, the last among them; results.csv has all."""
    room = max(1, (console.width - longest - 3 - 6 - 4 * CELL) // CELL)
    if len(counts) <= room:
        return counts
    return (
        [counts[-1 - (len(counts) - 1) * i // max(1, room - 1)] for i in reversed(range(room))]
        if room > 1
        else counts[-1:]
    )


def shown(value: dict[str, Any] | None, n: int | None = None, sign: str = "") -> str:
    """An estimate in per cent; its n where it is not that of its row."""
    if value is None:
        return ""
    half = "" if value["half"] is None else f" ± {100 * value['half']:.2f}"
    return f"{100 * value['mean']:{sign}.2f}{half}" + (f" (n={value['n']})" if n not in (None, value["n"]) else "")


def noted(plan: Plan, name: str) -> dict[str, Any] | None:
    path = plan.folder / name
    found: dict[str, Any] | None = read_json(path) if path.exists() else None
    return found


def progress(plan: Plan) -> Text:
    states = noted(plan, "states.json") or {}
    done = sum(state == "done" for state in states.values())
    lines = [
        f"{done} of {len(plan.points)} points done"
        + "".join(f", {point.title} failed" for point in plan.points if states.get(point.name) == "failed")
    ]
    lines += [
        f"  {point.title}: {doing(plan, point.name)}" for point in plan.points if states.get(point.name) == "running"
    ]
    return Text("\n".join(lines))


def doing(plan: Plan, name: str) -> str:
    """The last cycle that a running point has evaluated, and the stage that says something of itself."""
    tree = plan.folder / name
    with contextlib.suppress(DataError):
        pipeline = Pipeline(tree)
        evaluated = [cycle for cycle in pipeline.cycles if pipeline.path("evaluate", "metrics", cycle).exists()]
        notes = sorted((tree / ".codline/progress").glob("*.json"))
        stage = f", {notes[0].stem}" if notes else ""
        return f"{len(evaluated)} of {len(pipeline.cycles)} cycles{stage}"
    return "starting"


class Board:
    """Drawn anew at every look."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __rich__(self) -> Group:
        return Group(results(self.plan), progress(self.plan))


@contextlib.contextmanager
def live(plan: Plan) -> Iterator[None]:
    """The table and the running points, redrawn; where nothing can be redrawn, a line for each point."""
    if not console.is_terminal:
        studies.listeners.append(lambda point, state: console.print(f"  {point.title}: {state}"))
        yield
        return
    with Live(Board(plan), console=console, refresh_per_second=1, transient=True):
        yield
