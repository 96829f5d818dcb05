"""The images of a batch that one of several training processes takes, and random numbers that do not depend on it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class BatchPart:
    """Some images of a batch. Mean losses of the parts, times their weights, have the batch's as their mean."""

    rows: slice | np.ndarray
    count: int  # images of the whole batch
    image_weight: float = 1.0  # of a mean over images
    pair_weight: float = 1.0  # of a mean over pairs: the first image with the last, and so on


def whole_batch(count: int) -> BatchPart:
    return BatchPart(slice(None), count)


def part_of_rank(count: int, rank: int, processes: int) -> BatchPart:
    """Whole pairs of the first image with the last, the second with the last but one, and so on, in their order.

    So a loss over pairs needs no images of another process. The last process takes the image that an odd number of
    images leaves over, as its last one. With fewer pairs than processes, some get the first pair with a weight of 0.
    """
    pairs = count // 2
    start, stop = (pairs * each // processes for each in (rank, rank + 1))
    first = np.arange(start, stop)
    has_last = count % 2 == 1 and rank == processes - 1
    rows = np.concatenate([first, 2 * pairs - 1 - first[::-1], np.arange(2 * pairs, count if has_last else 2 * pairs)])
    image_weight, pair_weight = (
        processes * part / max(1, of) for part, of in ((len(rows), count), (len(first), pairs))
    )
    return BatchPart(rows if len(rows) else np.arange(min(2, count)), count, image_weight, pair_weight)


class BatchDraws:
    """Random numbers for the images of a part: those that they get if one process draws for the whole batch."""

    def __init__(self, generator: Generator, part: BatchPart) -> None:
        self.generator, self.part = generator, part

    def uniform(self) -> Tensor:
        """One number from 0 to 1 for each image."""
        return torch.rand(self.part.count, generator=self.generator)[self.part.rows]

    def integers(self, end: int) -> Tensor:
        """One whole number from 0 to end - 1 for each image."""
        return torch.randint(end, (self.part.count,), generator=self.generator)[self.part.rows]
