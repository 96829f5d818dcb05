"""Where the images of the paper's datasets come from: `--data NAME=FOLDER`, `--data NAME=download`."""

import os
from pathlib import Path

from codline.core.errors import UserError
from codline.core.files import user_path
from codline.core.params_errors import format_value, suggestion
from codline.orchestration import presets
from codline.paper.protocols import Overrides, ProtocolDataset, protocols

VARIABLE = "CODLINE_PAPER_DATA"  # the same pairs, separated by commas
DOWNLOAD = "download"
Sources = dict[str, str]  # {dataset: absolute path of a folder, or `download`}


def parse_sources(pairs: list[str]) -> Sources:
    """`--data` and the environment variable; the option replaces what the variable says."""
    scales = protocols().scales.values()
    names = sorted({name for scale in scales for name, each in scale.datasets.items() if each.data != "embedded"})
    sources = {}
    for pair in [*filter(None, os.environ.get(VARIABLE, "").split(",")), *pairs]:
        name, equals, value = pair.partition("=")
        if not equals or not value:
            raise UserError(f"--data {pair}: expected NAME=FOLDER or NAME={DOWNLOAD}, such as cifar10=raw/cifar10")
        if name not in names:
            raise UserError(f"--data {pair}: unknown dataset {format_value(name)}{suggestion(name, names)}")
        folder = user_path(value)
        if value != DOWNLOAD and not folder.is_dir():
            raise UserError(f"--data {pair}: {value} is not a folder")
        sources[name] = value if value == DOWNLOAD else str(folder.resolve())
    return sources


def missing_data(name: str, dataset: ProtocolDataset) -> str:
    """What to give for a dataset that has no source."""
    other = f" or --data {name}={DOWNLOAD}" if dataset.data == "official" else " with train*.parquet and test*.parquet"
    return f"give --data {name}=FOLDER{other}"


def dataset_overrides(name: str, dataset: ProtocolDataset, sources: Sources) -> Overrides:
    """The preset's dataset, read from the given source."""
    if dataset.data == "embedded":
        return {}
    source = sources[name]
    if source == DOWNLOAD:
        if dataset.data == "parquet":
            raise UserError(f"--data {name}={DOWNLOAD}: this scale reads it from Parquet files; give their folder")
        return {}
    files = sorted(Path(source).glob("*.parquet"))
    if not files and dataset.data == "official":
        return {"prepare.dataset.root": source}
    train, test = ([str(path) for path in files if path.name.startswith(split)] for split in ("train", "test"))
    if not train or not test:
        raise UserError(f"--data {name}={source}: expected files train*.parquet and test*.parquet in it")
    plugin = presets.resolve(dataset.preset)["prepare"]["dataset"]["name"]
    kept = plugin if dataset.data == "parquet" and plugin == "camvid" else "parquet"
    return {"prepare.dataset": {"name": kept, "train": train, "test": test}}
