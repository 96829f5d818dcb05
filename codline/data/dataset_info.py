"""dataset.json: properties of the dataset that every stage may read."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from codline.core.errors import DataError
from codline.core.files import read_json
from codline.data.dense_outputs import stored_output_shape


class DatasetInfo(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["classification", "segmentation"]
    classes: list[str]
    shape: tuple[int, int, int]  # channels, height, width of an image
    mean: list[float]  # per channel, of pixels scaled to [0, 1]
    std: list[float]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the model outputs that are stored for one image."""
        return stored_output_shape(len(self.classes), self.shape[1:] if self.task == "segmentation" else ())


def read_dataset_info(path: Path) -> DatasetInfo:
    try:
        return DatasetInfo.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{path}: not what prepare writes: {first['loc'][0]}: {first['msg']}") from error
