"""Lists a family of plug-ins with their parameters: python -m codline.cli.plugins strategies"""

import importlib
import inspect
import sys
from typing import get_args

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

UNIONS = {
    "strategies": "AnyStrategy",
    "models": "AnyModel",
    "datasets": "AnyDataset",
    "annotators": "AnyAnnotator",
    "objectives": "AnyObjective",
    "pickers": "AnyPicker",
}


def members(family: str) -> list[type[BaseModel]]:
    """The classes of a family's union; a union of one class is that class itself."""
    union = getattr(importlib.import_module(f"codline.{family}"), UNIONS[family])
    if isinstance(union, type):
        return [union]
    inner = get_args(union)[0]
    return list(get_args(inner)) or [inner]


def plugins_table(family: str) -> Table:
    table = Table(title=family)
    for heading in ("name", "parameters and their defaults", "what it is"):
        table.add_column(heading, overflow="fold")
    for member in members(family):
        parameters = [
            f"{name}: {'required' if field.is_required() else field.default}"
            for name, field in member.model_fields.items()
            if name != "name"
        ]
        documentation = inspect.getdoc(inspect.getmodule(member)) or ""
        first_paragraph = " ".join(documentation.partition("\n\n")[0].split())
        table.add_row(member.model_fields["name"].default, ", ".join(parameters), first_paragraph)
    return table


if __name__ == "__main__":
    Console().print(plugins_table(sys.argv[1]))
