"""scan: the files that one input of the dataset consists of, with their hashes; prepare depends on them."""

from pathlib import Path

from codline.core.errors import UserError
from codline.core.params import Section
from codline.data import tables
from codline.data.input_files import scan_input
from stages.runner import Out, run


class Params(Section):
    """scan has no parameters."""


def scan(params: Params, *, inputs: dict[str, str], input: str, manifest: Out) -> None:  # noqa: A002 (its argument)
    if input not in inputs:
        raise UserError(f"params.yaml: inputs.{input}: missing")
    tables.write_table(scan_input(input, Path(inputs[input])), tables.MANIFEST, manifest)


if __name__ == "__main__":
    run(scan)
