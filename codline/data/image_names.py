"""data/files.parquet: the file names of images, of which an image may have none, one or several."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from codline.data import tables


class ImageNames:
    """Looks up a few names or ids among up to millions: the table stays in Arrow, which takes 50 ms a million."""

    def __init__(self, files: Path) -> None:
        self.table = tables.read_table(files, tables.FILES)

    @property
    def ids(self) -> np.ndarray:
        """One per name."""
        ids: np.ndarray = self.table["id"].to_numpy()
        return ids

    def ids_of(self, names: Collection[str]) -> dict[str, int]:
        """{name: id} of the names that exist."""
        found = self.rows_with("file", pa.array(list(names), pa.string()))
        return dict(zip(found["file"].to_pylist(), found["id"].to_pylist(), strict=True))

    def names_of(self, ids: np.ndarray) -> dict[int, list[str]]:
        """{id: its names, in their order in the table} of the ids that have one."""
        found, names = self.rows_with("id", pa.array(ids, pa.int64())), dict[int, list[str]]()
        for image_id, name in zip(found["id"].to_pylist(), found["file"].to_pylist(), strict=True):
            names.setdefault(image_id, []).append(name)
        return names

    def first_names(self, ids: np.ndarray) -> list[str]:
        """The first name of each image, "" for an image without one."""
        names = self.names_of(ids)
        return [names[i][0] if i in names else "" for i in ids.tolist()]

    def rows_with(self, column: str, values: pa.Array) -> pa.Table:
        return self.table.filter(pc.is_in(self.table[column], values))
