"""Export a query for labeling, as images and as rows to fill in: python -m codline.report.query_export CYCLE"""

import csv
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from codline.core.errors import CodlineError, UserError
from codline.core.files import atomic_directory, write_text
from codline.core.params_errors import suggestion
from codline.data import dataset_info, image_store, tables
from codline.data.csv_input import read_csv_rows
from codline.data.labels import read_ids
from codline.runtime.pipeline import Pipeline

DIRECTORY = Path("queries")


def export_query(pipeline: Pipeline, cycle: str) -> str:
    """Write an image per id and the rows that the answers file lacks; return what the user should do next."""
    if cycle not in pipeline.queries:
        raise UserError(f"cycle: found {cycle!r}{suggestion(cycle, list(pipeline.queries))}")
    ids = read_ids(pipeline.path("annotate", "query", cycle), tables.QUERY)
    store = image_store.open_image_store(pipeline.path("score", "images", cycle))
    with atomic_directory(DIRECTORY / cycle) as directory:
        for i in ids:
            to_image(store.take(np.array([i]))[0]).save(directory / f"{i}.png")
    exported = f"{len(ids)} images are in {DIRECTORY / cycle}, named by their ids."
    annotator = pipeline.params["annotate"]["annotator"]
    if annotator.get("name") != "people":
        return exported
    path = Path(annotator["answers"])
    unlabeled = add_missing_rows(path, ids)
    classes = ", ".join(dataset_info.read_dataset_info(pipeline.path("annotate", "dataset", cycle)).classes)
    todo = f"fill in the `label` column of {path} (one of {classes}), then run `codline run`"
    return f"{exported} {unlabeled} of them have no label yet: {todo}."


def to_image(image_CHW: np.ndarray) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image_CHW[0] if len(image_CHW) == 1 else image_CHW.transpose(1, 2, 0)))


def add_missing_rows(path: Path, ids: np.ndarray) -> int:
    """Append a row for every id that the CSV lacks, leave the others as they are, and count ids without a label."""
    labels = {row["id"]: row["label"] for _, row in read_csv_rows(path, "id", "label")} if path.exists() else {}
    text = path.read_text(encoding="utf-8") if path.exists() else "id,label\n"
    header = [name.strip().lower() for name in next(csv.reader(text.lstrip("\ufeff").splitlines()))]
    added = io.StringIO()
    writer = csv.DictWriter(added, header, restval="", lineterminator="\n")
    writer.writerows({"id": str(i)} for i in ids if str(i) not in labels)
    write_text(path, text + ("" if text.endswith("\n") else "\n") + added.getvalue())
    return sum(not labels.get(str(i)) for i in ids)


if __name__ == "__main__":
    try:
        Console(highlight=False).print(export_query(Pipeline(), sys.argv[1]), soft_wrap=True)
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)
