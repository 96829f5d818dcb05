"""A query laid out for people, as pictures to look at and rows to fill in: python -m codline.asking c1"""

import csv
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from codline.core.errors import CodlineError, UserError
from codline.core.files import whole_folder, write_text
from codline.core.params import near
from codline.data import dataset_info, image_store, tables
from codline.data.csv_input import read
from codline.data.labels import ids_of
from codline.runtime.pipeline import Pipeline

FOLDER = Path("queries")


def lay_out(pipeline: Pipeline, cycle: str) -> str:
    """Write the pictures, named by their ids, and the rows that are not there yet; say what to do with them."""
    if cycle not in pipeline.queries:
        raise UserError(f"cycle: found {cycle!r}{near(cycle, list(pipeline.queries))}")
    ids = ids_of(pipeline.path("annotate", "query", cycle), tables.QUERY)
    store = image_store.opened(pipeline.path("score", "images", cycle))
    with whole_folder(FOLDER / cycle) as part:
        for i in ids:
            drawn(store.take(np.array([i]))[0]).save(part / f"{i}.png")
    shown = f"{len(ids)} images are in {FOLDER / cycle}, named by their ids"
    annotator = pipeline.params["annotate"]["annotator"]
    if annotator.get("name") != "people":
        return f"{shown}."
    path = Path(annotator["answers"])
    waiting = listed(path, ids)
    classes = ", ".join(dataset_info.opened(pipeline.path("annotate", "dataset", cycle)).classes)
    return f"{shown}. {waiting} of them have no label yet: write it behind the id in {path} (one of {classes}), then codline run."


def drawn(image_CHW: np.ndarray) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image_CHW[0] if len(image_CHW) == 1 else image_CHW.transpose(1, 2, 0)))


def listed(path: Path, ids: np.ndarray) -> int:
    """Let the csv have a row for every id, and count those without a label."""
    rows = dict((row["id"], row["label"]) for _, row in read(path, "id", "label")) if path.exists() else {}
    before = path.read_text(encoding="utf-8") if path.exists() else "id,label\n"
    header = [name.strip().lower() for name in next(csv.reader(before.lstrip("\ufeff").splitlines()))]
    added = io.StringIO()
    lines = csv.DictWriter(added, header, restval="", lineterminator="\n")
    lines.writerows({"id": str(i)} for i in ids if str(i) not in rows)
    write_text(path, before + ("" if before.endswith("\n") else "\n") + added.getvalue())
    return sum(not rows.get(str(i)) for i in ids)


if __name__ == "__main__":
    try:
        Console(highlight=False).print(lay_out(Pipeline(), sys.argv[1]), soft_wrap=True)
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)
