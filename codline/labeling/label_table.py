"""One row per image and name: its split, its label and who gave it, and what the model predicts."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from codline.core.errors import UserError
from codline.core.files import atomic_write
from codline.data import output_store, tables
from codline.data.dataset_info import DatasetInfo, read_dataset_info
from codline.data.image_names import ImageNames
from codline.data.labels import read_ids
from codline.runtime.pipeline import Pipeline

CHUNK = 4096  # images whose logits are in memory at once
DATASET = "dataset"  # the annotator of labels that came with the images
EXPORT = pa.schema(
    [
        ("file", pa.string()),
        ("id", pa.int64()),
        ("split", pa.string()),  # pool, validation or test
        ("label", pa.string()),
        ("annotator", pa.string()),
        ("cycle", pa.string()),  # in which a label of the pool was given
        ("predicted", pa.string()),
        ("confidence", pa.float64()),
    ]
)


def label_table(pipeline: Pipeline) -> pa.Table:
    """Only labels that the campaign has: those that a simulation still hides are not in it."""
    info = read_dataset_info(pipeline.path("prepare", "dataset"))
    if info.task == "segmentation":
        raise UserError("codline export: found a segmentation dataset, expected labels that are classes, not masks")
    schemas = {"pool": tables.POOL, "validation": tables.VALIDATION, "test": tables.TEST}
    parts = {split: read_ids(pipeline.path("prepare", split), schema) for split, schema in schemas.items()}
    ids = np.concatenate(list(parts.values()))
    columns = {"id": pa.array(ids), "split": pa.array(np.repeat(list(parts), [len(part) for part in parts.values()]))}
    columns |= align(ids, known_labels(pipeline, info))
    columns |= align(ids, pool_predictions(pipeline, info), test_predictions(pipeline))
    return add_names(pa.table(columns), ImageNames(pipeline.path("prepare", "files")))


def known_labels(pipeline: Pipeline, info: DatasetInfo) -> pa.Table:
    """id, label, annotator, cycle: of the pool up to the last merged cycle, and of the images that are set aside."""
    labeled = [path for cycle in pipeline.queries if (path := pipeline.path("merge", "labeled", cycle)).exists()]
    of_pool = tables.read_table(labeled[-1] if labeled else pipeline.path("prepare", "labeled"), tables.LABELED)
    aside = [tables.read_table(pipeline.path("prepare", name), tables.TEST) for name in ("validation", "test")]
    others = pa.concat_tables(aside)
    others = others.append_column("cycle", pa.nulls(len(others), pa.string()))
    others = others.append_column("annotator", pa.array([DATASET] * len(others), pa.string()))
    both = pa.concat_tables([of_pool.cast(others.schema), others])
    names = pa.array(info.classes, pa.string()).take(both["label"].combine_chunks())
    return both.set_column(both.schema.get_field_index("label"), "label", names)


def pool_predictions(pipeline: Pipeline, info: DatasetInfo) -> pa.Table:
    """id, predicted, confidence: by the last cycle that scored the unlabelled images."""
    scored = [path for cycle in pipeline.queries if (path := pipeline.path("score", "outputs", cycle)).exists()]
    if not scored:
        return pa.table({"id": pa.array([], pa.int64()), "predicted": pa.array([], pa.string()), "confidence": []})
    store = output_store.open_output_store(scored[-1], info.output_shape)
    classes, confidences = [np.empty(0, np.int64)], [np.empty(0)]
    for start in range(0, len(store), CHUNK):
        probs = output_store.softmax(store.take(store.ids[start : start + CHUNK]))
        classes.append(probs.argmax(axis=1))
        confidences.append(probs.max(axis=1))
    predicted = pa.array(info.classes, pa.string()).take(pa.array(np.concatenate(classes)))
    return pa.table({"id": store.ids, "predicted": predicted, "confidence": np.concatenate(confidences)})


def test_predictions(pipeline: Pipeline) -> pa.Table:
    """The same for the test images, by the last evaluated cycle."""
    evaluated = [
        path for cycle in pipeline.cycles if (path := pipeline.path("evaluate", "predictions", cycle)).exists()
    ]
    kinds = {"id": pa.int64(), "predicted": pa.string(), "confidence": pa.float64()}
    if not evaluated:
        return pa.schema(list(kinds.items())).empty_table()
    options = pa.csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    with tables.translate_read_errors(evaluated[-1]):
        return pa.csv.read_csv(evaluated[-1], convert_options=options)


def align(ids: np.ndarray, *parts: pa.Table) -> dict[str, Any]:
    """The columns of tables with a column `id`, in the order of `ids`; null where none has the id."""
    values = pa.concat_tables([part.cast(parts[-1].schema) for part in parts]).combine_chunks()
    order = np.argsort(values["id"].to_numpy(), kind="stable")
    sorted_ids = values["id"].to_numpy()[order]
    places = np.searchsorted(sorted_ids, ids)
    found = places < len(order)
    found[found] = sorted_ids[places[found]] == ids[found]
    rows = pa.array(order[np.where(found, places, 0)] if len(order) else np.zeros(len(ids), np.int64), mask=~found)
    return {name: values[name].take(rows) for name in values.column_names if name != "id"}


def add_names(table: pa.Table, names: ImageNames) -> pa.Table:
    """A row per name of an image, or one without a name; sorted by name."""
    by_id = names.table.sort_by([("id", "ascending"), ("file", "ascending")])
    ids, known = table["id"].to_numpy(), by_id["id"].to_numpy()
    first, end = np.searchsorted(known, ids, "left"), np.searchsorted(known, ids, "right")
    counts = np.maximum(end - first, 1)
    rows = np.repeat(np.arange(len(ids)), counts)
    places = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    files = by_id["file"].take(pa.array(places, mask=(end == first)[rows]))
    result = table.take(pa.array(rows)).append_column("file", files).select(EXPORT.names).cast(EXPORT)
    return result.sort_by([("file", "ascending"), ("id", "ascending")])


def write_table(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        tables.write_chunks([table], EXPORT, path)
    elif path.suffix == ".csv":
        with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")  # Arrow's would put every text in quotes
            writer.writerow(EXPORT.names)
            for batch in table.to_batches():
                writer.writerows(zip(*batch.to_pydict().values(), strict=True))
    else:
        raise UserError(f"{path}: expected a name that ends with .csv or .parquet")
