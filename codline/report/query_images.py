"""Pictures of a query: its images; for segmentation also the annotated and the predicted masks."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from codline.data import masks, output_store, tables
from codline.data.dataset_info import DatasetInfo
from codline.data.dense_outputs import STRIDE
from codline.data.labels import refuse_unknown_classes
from codline.report import gallery


def query_pictures(
    ids: np.ndarray, take: Callable[[np.ndarray], np.ndarray], info: DatasetInfo, annotations: Path, outputs: Path
) -> np.ndarray:
    """(N, channels, height, width). For segmentation side by side: the image, the annotation, the prediction."""
    images = take(ids)
    if info.task == "classification":
        return images
    cells = read_annotations(annotations, len(info.classes))
    annotated = [masks.decode_mask(cell) if isinstance(cell := cells.get(i), bytes) else None for i in ids.tolist()]
    predicted = predicted_masks(ids, info, outputs) if outputs.exists() else [None] * len(ids)
    return np.stack([gallery.overlay_masks(*row) for row in zip(images, annotated, predicted, strict=True)])


def read_annotations(path: Path, classes: int) -> dict[int, int | bytes]:
    """{id: label} of the images annotated so far."""
    if not path.exists():
        return {}
    table = tables.read_table(path, tables.ANNOTATIONS)
    refuse_unknown_classes(path, table, classes)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def label_text(label: int | bytes, classes: list[str]) -> str:
    """The name of a class; for a mask, the number of classes in it."""
    if isinstance(label, bytes):
        present = np.unique(masks.decode_mask(label))
        return f"{(present < len(classes)).sum()} classes"
    return classes[label]


def predicted_masks(ids: np.ndarray, info: DatasetInfo, outputs: Path) -> list[np.ndarray | None]:
    """Masks of full size from the stored outputs, of which there is one per square of STRIDE pixels."""
    coarse = output_store.open_output_store(outputs, info.output_shape).take(ids).argmax(axis=1).astype(np.uint8)
    rows, columns = (
        np.minimum(np.arange(side) // STRIDE, count - 1)
        for side, count in zip(info.shape[1:], coarse.shape[1:], strict=True)
    )
    return list(coarse[:, rows][:, :, columns])
