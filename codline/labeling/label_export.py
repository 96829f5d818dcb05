"""Export labels and predictions: python -m codline.labeling.label_export [TABLE] [--imagefolder DIRECTORY]"""

import argparse
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from codline.annotators.people import People
from codline.core.errors import DataError, UserError, exit_on_error
from codline.core.files import atomic_directory
from codline.core.params_errors import format_value
from codline.labeling.check_answers import AnswerSheets, read_annotator
from codline.labeling.label_table import label_table, write_table
from codline.labeling.originals import distinct_name, find_originals
from codline.runtime.pipeline import Pipeline

MAX_NAME = 255  # bytes of a folder's name
MARKER = ".codline-export"  # in image folders that codline has made, and may replace


def export_labels(pipeline: Pipeline, path: Path | None, imagefolder: Path | None) -> list[str]:
    """Write what is asked for; return a line about each file, and one about answers that are not used yet."""
    if path is None and imagefolder is None:
        raise UserError("codline export: expected a file, such as labels.csv, or --imagefolder with a folder")
    if not pipeline.path("prepare", "dataset").exists():
        raise UserError("codline export: found no data, expected a campaign that has begun; run `codline run`")
    table, lines = label_table(pipeline), []
    images = table.group_by("id").aggregate([("label", "one")])
    labeled = len(images) - images["label_one"].null_count
    if path is not None:
        write_table(table, path)
        lines.append(f"{path}: {len(table):,} rows of {len(images):,} images, of which {labeled:,} have a label.")
    if imagefolder is not None:
        make_image_folder(pipeline, table, imagefolder)
        lines.append(f"{imagefolder}: {labeled:,} labelled images in a folder per class.")
    if count := count_unused_answers(pipeline, table):
        lines.append(f"{count} answers are newer than these labels: run `codline run`, then export again.")
    return lines


def count_unused_answers(pipeline: Pipeline, table: pa.Table) -> int:
    """Answers of people that differ from the labels of the last run."""
    annotator = read_annotator(pipeline.params)
    if not isinstance(annotator, People):
        return 0
    sheets, _ = AnswerSheets(pipeline, annotator).read()
    given = {i: answer.label for sheet in sheets.values() for i, answer in sheet.answers.items()}
    used = table.filter(pc.is_in(table["id"], pa.array(list(given), pa.int64())))
    labels = dict(zip(used["id"].to_pylist(), used["label"].to_pylist(), strict=True))
    return sum(labels.get(i) != label for i, label in given.items())


def make_image_folder(pipeline: Pipeline, table: pa.Table, folder: Path) -> None:
    """Folders of links, which torchvision's ImageFolder reads. An image with several names is in it once."""
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and is_replaceable(folder))):
        raise UserError(f"{folder}: exists and was not made by `codline export`; expected a new or empty folder")
    table = table.filter(pc.is_valid(table["label"]))
    labels = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
    refuse_class_names(sorted(set(labels.values())))
    originals, taken = find_originals(pipeline, np.array(list(labels), np.int64)), set[str]()
    with atomic_directory(folder) as directory:
        for i, label in labels.items():
            name = distinct_name(f"{label}/{PurePosixPath(originals[i].name).name}", i, taken)
            originals[i].write(directory, name)
        (directory / MARKER).touch()


def is_replaceable(folder: Path) -> bool:
    return (folder / MARKER).exists() or not any(folder.iterdir())


def refuse_class_names(classes: list[str]) -> None:
    for name in classes:
        if "/" in name or name.startswith(".") or len(name.encode()) > MAX_NAME:
            raise DataError(f"found the class {format_value(name)}, expected a name that a folder can have")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--imagefolder", type=Path)
    arguments = parser.parse_args()
    with exit_on_error():
        for line in export_labels(Pipeline(), arguments.table, arguments.imagefolder):
            Console(highlight=False).print(line, soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
