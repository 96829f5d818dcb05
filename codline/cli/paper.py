"""`codline paper`: the paper's figures and tables, by the studies that they need."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from codline.cli import display, environment
from codline.cli.prefect_session import prefect_session
from codline.cli.study import default_jobs
from codline.core.errors import CodlineError, UserError
from codline.core.files import read_json
from codline.orchestration.paper_data import VARIABLE, parse_sources
from codline.paper.items import ITEMS, Item, find_item
from codline.paper.protocols import protocols

if TYPE_CHECKING:
    from codline.orchestration.paper_plan import PaperScale


def paper(
    item: Annotated[str | None, typer.Argument(help="A figure or table; without it, all are listed.")] = None,
    scale: Annotated[str, typer.Option(help="smoke (minutes), small (hours) or paper (GPU days).")] = "small",
    data: Annotated[
        list[str] | None,
        typer.Option(help=f"NAME=FOLDER of Parquet files, or NAME=download. May be repeated; also {VARIABLE}."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Make every figure and table, and a page of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run the campaigns of --scale paper without asking.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Campaigns at a time. Default: the number of processors, at most 4.")
    ] = None,
) -> None:
    """Make the paper's figures and tables from campaigns, which are run if needed and shared between them."""
    environment.silence_stages()
    from codline.orchestration.paper_plan import PaperScale, drawable_items

    sources, jobs = parse_sources(data or []), jobs or default_jobs()
    if item is None and not all_:
        print_items([PaperScale(name, sources) for name in protocols().scales], jobs)
        return
    if item is not None and all_:
        raise UserError(f"paper: found the item {item} and --all, expected one of them")
    at_scale = PaperScale(scale, sources)
    items = drawable_items() if item is None else [drawable(item)]
    for each in items if item else []:
        at_scale.refuse_without_data(each)
    started, failure = time.monotonic(), None
    if confirm_campaigns(at_scale, items, jobs, yes) or at_scale.has_unlogged(items):
        failure = run_studies(at_scale, items, jobs)
    at_scale.draw(items)
    if all_:
        display.print_line(f"Open {at_scale.write_page()}")
    else:
        print_drawing(items[0], at_scale.item_folder(items[0]))
    if failure:
        raise failure
    display.print_line(f"Done in {time.monotonic() - started:.0f} s.")


def drawable(name: str) -> Item:
    found = find_item(name)
    if found.is_diagram:
        raise UserError(f"paper {found.name}: {found.place} is a {found.about}")
    return found


def confirm_campaigns(at_scale: "PaperScale", items: list[Item], jobs: int, yes: bool) -> bool:
    """Show how many campaigns are to run and what they cost; at the scale paper, ask. False: all are done."""
    state = at_scale.state(items)
    for sentence in state.missing:
        display.print_line(f"No data for {sentence}.")
    to_run, cost = state.campaigns - state.done, cost_text(state.minutes, at_scale.protocol.hardware, jobs)
    if not to_run:
        return False
    intention = f"{to_run} of {state.campaigns} campaigns to run, {cost}"
    display.print_line(intention + ".")
    if at_scale.name == "paper" and not yes:
        confirm(intention)
    return True


def run_studies(at_scale: "PaperScale", items: list[Item], jobs: int) -> CodlineError | None:
    """Run the campaigns that are not done. A study that fails does not stop the others; the first error is returned."""
    from codline.cli.study_progress import live_display
    from codline.orchestration.study_plan import plan_study
    from flows.study import study as study_flow

    failure: CodlineError | None = None
    with prefect_session():
        for used, arms in at_scale.arms(items).items():
            path = str(at_scale.write_study(at_scale.study(used, arms)))
            try:
                plan = plan_study(path)
                if plan.unfinished or plan.unlogged:
                    with live_display(plan):
                        study_flow(path, {}, jobs)
            except CodlineError as error:
                failure = failure or error
    return failure


def confirm(intention: str) -> None:
    if not sys.stdin.isatty():
        raise UserError(f"paper: {intention}; add --yes to run them")
    if not typer.confirm("Run them?"):
        raise UserError("paper: not run")


def cost_text(minutes: float, hardware: str, jobs: int) -> str:
    """On a GPU the hours of one; on a CPU the time with so many campaigns at once."""
    if hardware == "GPU":
        return f"about {duration(minutes)} of one GPU"
    return f"about {duration(minutes / jobs)} with {jobs} at a time"


def duration(minutes: float) -> str:
    if minutes < 90:
        return f"{max(1, round(minutes))} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.0f} days"


def print_items(scales: list["PaperScale"], jobs: int) -> None:
    """Two lines for each item, of at most 80 columns: what it shows, and its state at each scale."""
    for item in ITEMS:
        display.print_line(f"{item.name} ({item.place}): {item.about}")
        if not item.is_diagram:
            states = [f"{each.name}: {state_text(each, item, jobs)}" for each in scales]
            display.print_line("  " + "".join(f"{state:25} " for state in states).rstrip(), style="dim")
    display.print_line("Times are of the campaigns that are not done. Items share campaigns.")


def state_text(at_scale: "PaperScale", item: Item, jobs: int) -> str:
    state = at_scale.state([item])
    minutes = state.minutes + state.missing_minutes
    left = duration(minutes if at_scale.protocol.hardware == "GPU" else minutes / jobs)
    return f"{state.text}, {left}" if minutes else state.text


def print_drawing(item: Item, folder: Path) -> None:
    """The table, or one line for each of its rows if the terminal is too narrow; then the notes and the files."""
    title, drawn = f"{item.place}: {item.about}", read_json(folder / "item.json")
    if drawn["table"]:
        columns, rows = drawn["table"]["columns"], drawn["table"]["rows"]
        width = sum(3 + max(map(len, cells)) for cells in zip(columns, *rows, strict=True)) + 1
        if width <= display.console.width or len(columns) == 2:
            table = Table(*columns, title=title)
            for row in rows:
                table.add_row(*row)
            display.console.print(table)
        else:
            display.print_line(title)
            for name, *cells in rows:
                values = ", ".join(f"{column} {cell}" for column, cell in zip(columns[1:], cells, strict=True))
                display.print_line(f"  {name}: {values}")
    for note in drawn["notes"]:
        display.print_line(note)
    names = [name for name in ("figure.png", "figure.svg", "table.csv") if (folder / name).exists()]
    display.print_line(f"Open {' or '.join(str(folder / name) for name in names)}")
