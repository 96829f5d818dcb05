"""`codline clean`: what takes up space, and what can be removed."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from codline.cli import display
from codline.core import params
from codline.core.errors import UserError
from codline.core.units import format_bytes
from codline.runtime.pipeline import Pipeline

if TYPE_CHECKING:
    from codline.orchestration.disposables import Disposable


def clean(
    names: Annotated[list[str] | None, typer.Argument(help="What to remove. Default: nothing, only list it.")] = None,
) -> None:
    """List what grows in this workspace, with sizes and what removing it costs; remove what is named.

    Results that a dvc.lock names stay: of this workspace, of git worktrees, and of branches, tags and experiments.
    """
    from codline.orchestration.disposables import DISPOSABLES, lock_studies_and_dvc
    from codline.orchestration.workspace import open_workspace

    known = [each.name for each in DISPOSABLES]
    if unknown := [name for name in names or () if name not in known]:
        raise UserError(f"codline clean {unknown[0]}: expected one or more of {', '.join(known)}")
    if not names:
        params.parse_cycles(Pipeline().params)  # refuses a foreign directory
        print_disposables(DISPOSABLES)
        return
    with open_workspace(), lock_studies_and_dvc():
        for each in DISPOSABLES:
            if each.name in names:
                remove_disposable(each)


def print_disposables(disposables: "tuple[Disposable, ...]") -> None:
    from codline.orchestration.disposables import freed_bytes, total_bytes

    table = Table(title="What takes up space")
    for heading in ("name", "size", "removable", "what can be removed", "what that costs"):
        is_number = heading in ("size", "removable")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number)
    for each in disposables:
        removable = freed_bytes(each.find())
        sizes = (format_bytes(size) if size else "" for size in (max(total_bytes(each), removable), removable))
        table.add_row(each.name, *sizes, each.what, each.cost)
    display.console.print(table)
    display.print_line("`codline clean NAME ...` removes it. Results that a dvc.lock names stay.")


def remove_disposable(disposable: "Disposable") -> None:
    from codline.orchestration.disposables import freed_bytes

    paths = disposable.find()
    size = freed_bytes(paths)
    disposable.remove(paths)
    display.print_line(f"{disposable.name}: {format_bytes(size)} removed")
