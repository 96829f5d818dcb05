"""Lists a family of plug-ins: python -m codline.families strategies"""

import importlib
import inspect
import sys
from typing import Any, get_args

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
    """The classes of a family's union; a family of one is its class."""
    union = getattr(importlib.import_module(f"codline.{family}"), UNIONS[family])
    if isinstance(union, type):
        return [union]
    inner = get_args(union)[0]
    return list(get_args(inner)) or [inner]


def listed(family: str) -> Table:
    rows = Table(title=family)
    for heading in ("name", "parameters and their defaults", "what it is"):
        rows.add_column(heading, overflow="fold")
    for member in members(family):
        fields: dict[str, Any] = {
            key: "required" if field.is_required() else field.default
            for key, field in member.model_fields.items()
            if key != "name"
        }
        module = inspect.getmodule(member)
        rows.add_row(
            member.model_fields["name"].default,
            ", ".join(f"{k}: {v}" for k, v in fields.items()),
            (module.__doc__ or "").strip() if module else "",
        )
    return rows


if __name__ == "__main__":
    Console().print(listed(sys.argv[1]))
