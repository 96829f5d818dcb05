"""Labels that people write into a csv file (see `codline query`). The campaign waits until all images have one."""

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from codline.annotators.base import AnnotationRequest, Annotations, Annotator
from codline.core.errors import DataError
from codline.core.params_errors import suggestion
from codline.data.csv_input import read_csv_rows


class People(Annotator):
    needs_true_labels: ClassVar[bool] = False

    name: Literal["people"] = "people"
    answers: str  # csv file with the columns id and label, shared by all cycles

    def annotate(self, request: AnnotationRequest, rng: np.random.Generator) -> Annotations:
        path, ids = Path(self.answers), request.ids.tolist()
        labels = read_labels(path, request.classes) if path.exists() else {}
        if missing := sum(i not in labels for i in ids):
            how = (
                f"`codline query {request.cycle}` shows them and lists them in {path}: "
                "write the labels there, and run again"
            )
            raise DataError(f"{path}: {missing} of the {len(ids)} images asked for have no label yet; {how}")
        return Annotations(np.array([labels[i] for i in ids], np.int32), 0)


def read_labels(path: Path, classes: list[str]) -> dict[int, int]:
    """Class number by image id. Rows without a label are skipped."""
    labels: dict[int, int] = {}
    for line, row in read_csv_rows(path, "id", "label"):
        if not row["id"].isdecimal():
            raise DataError(f"{path}: line {line}: found the id {row['id']!r}, expected a number")
        if not row["label"]:
            continue
        if row["label"] not in classes:
            raise DataError(f"{path}: line {line}: found the label {row['label']!r}{suggestion(row['label'], classes)}")
        image_id, label = int(row["id"]), classes.index(row["label"])
        if labels.setdefault(image_id, label) != label:
            raise DataError(
                f"{path}: line {line}: {image_id} is labelled {row['label']}, "
                f"further up {classes[labels[image_id]]}; expected one label"
            )
    return labels
