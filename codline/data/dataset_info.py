"""dataset.json: what every stage may know of the data."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from codline.core.errors import DataError
from codline.core.files import read_json
from codline.data import dense_outputs


class Dataset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["classification", "segmentation"]
    classes: list[str]
    shape: tuple[int, int, int]
    mean: list[float]
    std: list[float]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of what is kept of a model's outputs for one image."""
        return dense_outputs.kept(len(self.classes), self.shape[1:] if self.task == "segmentation" else ())


def opened(path: Path) -> Dataset:
    try:
        return Dataset.model_validate(read_json(path))
    except ValidationError as error:
        raise DataError(
            f"{path}: not what prepare writes: {error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}"
        ) from error
