"""The rows of a stream with the highest scores, with all their columns, in bounded memory."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

SPARE = 4  # one row more is held for every four that are kept: rows are dropped together, which moves each rarely
MOVED_ROWS = 4096  # rows that are moved together


class TopRows:
    """Keeps `count` of `total` rows, in the order in which they come. Ties go to the earlier row.

    Columns are arrays that are filled in place, so that no second copy of them exists at any time.
    """

    def __init__(self, count: int, total: int) -> None:
        self.count, self.held, self.threshold = min(count, total), 0, -np.inf
        self.capacity = min(total, self.count + self.count // SPARE + 1)
        self.scores = np.empty(self.capacity)
        self.columns: dict[Hashable, np.ndarray] = {}

    def add(self, scores: np.ndarray, columns: Mapping[Any, np.ndarray]) -> None:
        rows = np.flatnonzero(scores > self.threshold)
        self.allocate(columns)
        while len(rows):
            if self.held == self.capacity:
                self.drop_lowest()
                rows = rows[scores[rows] > self.threshold]
                continue
            added = rows[: self.capacity - self.held]
            places = slice(self.held, self.held + len(added))
            self.scores[places] = scores[added]
            for name, values in columns.items():
                self.columns[name][places] = values[added]
            self.held, rows = places.stop, rows[len(added) :]

    def allocate(self, columns: Mapping[Any, np.ndarray]) -> None:
        """With the order of axes in memory that the first rows have: sums depend on it in their last bits."""
        for name in columns.keys() - self.columns.keys():
            shape = (self.capacity, *columns[name].shape[1:])
            self.columns[name] = np.empty_like(columns[name], shape=shape)

    def drop_lowest(self) -> None:
        """Keep the best `count` rows. Later rows need a higher score than the lowest of them."""
        kept = np.sort(np.argsort(-self.scores[: self.held], kind="stable")[: self.count])
        for values in (self.scores, *self.columns.values()):
            for start in range(0, len(kept), MOVED_ROWS):  # in order: none is overwritten before it is moved
                moved = kept[start : start + MOVED_ROWS]
                values[start : start + len(moved)] = values[moved]
        self.held, self.threshold = len(kept), self.scores[: len(kept)].min()

    def finish(self) -> dict[Hashable, np.ndarray]:
        """The columns of the rows that are kept."""
        if self.held > self.count:
            self.drop_lowest()
        return {name: values[: self.held] for name, values in self.columns.items()}
