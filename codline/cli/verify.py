"""`codline verify`: are the files of the campaign those that dvc.lock records?"""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from codline.cli import display
from codline.core.errors import DataError

if TYPE_CHECKING:
    from codline.orchestration.verification import CheckedFile


def verify(
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore damaged files from a whole copy; remove those that have none.")
    ] = False,
) -> None:
    """Read every output that dvc.lock names, in the workspace and in DVC's cache, and compare it with its hash."""
    from codline.orchestration import verification
    from codline.orchestration.workspace import open_workspace
    from codline.orchestration.worktrees import dvc_cache_directory
    from codline.runtime.object_store import ObjectStore
    from codline.runtime.recorded_outputs import LOCK, read_recorded_outputs

    with open_workspace():
        if not LOCK.exists():
            raise DataError(f"{LOCK}: not found, so no result is recorded yet: run `codline run`")
        outputs, objects = read_recorded_outputs(), ObjectStore(dvc_cache_directory() / "files" / "md5")
        columns = (TextColumn("verify"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=display.console, transient=True) as progress:
            task = progress.add_task("", total=verification.total_bytes(outputs.values(), objects))
            checker = verification.Verification(objects, lambda count: progress.advance(task, count))
            files = list(checker.check_outputs(outputs.values()))
        damaged = [file for file in files if file.is_damaged]
        done = [verification.repair(file, objects) if repair else "" for file in damaged]
    print_files(files, dict(zip(damaged, done, strict=True)))
    if damaged and not repair:
        raise DataError(f"{len(damaged)} of {len(files)} files are damaged; `codline verify --repair` restores them")
    if any(action.startswith("removed") for action in done):
        display.print_line("Run `codline run` to make again what was removed.")


def print_files(files: list["CheckedFile"], damaged: dict["CheckedFile", str]) -> None:
    counts = Table(title="Files that dvc.lock names")
    for heading in ("", "whole", "damaged", "absent"):
        counts.add_column(heading, justify="right" if heading else "left")
    for place, states in (
        ("workspace", Counter(file.in_workspace for file in files if not file.is_listing)),
        ("DVC's cache", Counter(file.in_cache for file in files)),
    ):
        counts.add_row(place, *(f"{states[state]:,}" for state in ("whole", "damaged", "absent")))
    display.console.print(counts)
    if damaged:
        table = Table("file", "stage", "workspace", "DVC's cache", "", title="Damaged")
        for file, action in damaged.items():
            table.add_row(str(file.path), file.stage, file.in_workspace, file.in_cache, action)
        display.console.print(table)
