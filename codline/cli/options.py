"""Options that several commands share."""

from typing import Annotated, Any

import typer

from codline.core.errors import UserError
from codline.core.params import parse_yaml

EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error, or out of memory; 2 a parameter is wrong; 3 a file is broken; "
    "4 training diverged; 5 the disk is full; 6 something is in use; 7 a stage or server was killed; "
    "8 people have yet to label images; 9 all images have labels."
)
LONGEST_SHOWN = 100  # characters of an argument, in a sentence
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-S", help="Set any value of params.yaml, such as train.epochs=10. May be repeated."),
]

Engine = Annotated[
    str | None,
    typer.Option(
        help="Where passes over images run: local, local:N with N worker processes, or on a Ray cluster with "
        "ray:N[@HOST:PORT][,cpus=C][,gpus=G] (see docs/engines.md). Decides no result."
    ),
]


def parse_overrides(pairs: list[str] | None) -> dict[str, Any]:
    """{dotted key: value} from `key=value` pairs. Values are YAML, so 3 is a number and [1, 2] a list."""
    overrides = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"-S {pair}: expected key=value, such as train.epochs=10")
        overrides[key] = parse_value(pair, value)
    return overrides


def parse_value(pair: str, value: str) -> Any:
    try:
        return parse_yaml(value)
    except ValueError as error:
        shown = pair if len(pair) <= LONGEST_SHOWN else f"{pair[:LONGEST_SHOWN]}..."
        found = f"-S {shown}: the value is not valid YAML ({error})"
        raise UserError(f"{found}; expected a value such as 10, true or [1, 2]") from error
