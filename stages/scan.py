"""scan: the files that one input of the dataset consists of, with their hashes; prepare depends on them."""

from pathlib import Path
from typing import Literal

from codline.core.errors import UserError
from codline.core.params import Section
from codline.data import tables
from codline.data.input_files import scan_input
from stages.runner import Out, run


class Params(Section):
    links: Literal["refuse", "follow"] = "refuse"  # that lead out of an input's folder


def scan(params: Params, *, inputs: dict[str, str], input: str, manifest: Out) -> None:  # noqa: A002 (its argument)
    if input not in inputs:
        raise UserError(f"params.yaml: inputs.{input}: missing")
    tables.write_table(scan_input(input, Path(inputs[input]), params.links == "follow"), tables.MANIFEST, manifest)


if __name__ == "__main__":
    run(scan)
