"""What the public datasets share: where their files lie, and which images are set aside."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.core.errors import DataError, UserError
from codline.data import downloads
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel
MEASURED: Statistics = ((), ())  # on the pool: the paper normalises, and does not say with which numbers
# main_TOD.py, transforms. The mean is CIFAR-10's; the deviation is that within single images, averaged, so smaller than that of the pixels.
RELEASED_CIFAR: Statistics = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
Part = tuple[np.ndarray, np.ndarray]  # uint8 images (N, channels, height, width), and their labels


class Official(DatasetSpec):
    root: str = "raw"  # where the files are, or go; DVC does not track it
    download: bool = True  # what is not there
    validation: NonNegativeInt = 0  # training images that are drawn and left out: neither in the pool nor for testing
    pool: PositiveInt | None = None  # so many of the others, drawn at random; all of them if left out

    def provide(self, ready: Callable[[], bool], bring: Callable[[], object]) -> None:
        if not ready():
            with downloads.alone(Path(self.root)):
                if not ready():  # another campaign may have brought them while we waited
                    bring()

    def fetched(self, path: Path, url: str, md5: str) -> Path:
        return downloads.fetched(path, url, md5, self.download)

    def drawn(self, order: np.ndarray) -> np.ndarray:
        """The rows of the pool, ascending, out of training images in random order. The images for validation do not depend on the pool's size."""
        left = len(order) - self.validation
        if left < 1:
            raise UserError(
                f"params.yaml: prepare.dataset.validation: found {self.validation}, but there are only {len(order)} training images"
            )
        if self.pool is not None and self.pool > left:
            raise UserError(
                f"params.yaml: prepare.dataset.pool: found {self.pool}, but only {left} training images are left for it"
            )
        return np.sort(order[self.validation :][: self.pool])

    def split(
        self, parts: list[Part], classes: list[str], rng: np.random.Generator, statistics: Statistics = MEASURED
    ) -> RawDataset:
        """Out of the images for training and those for testing: the pool first, then all test images."""
        (train, answers), (test, test_answers) = parts
        kept = self.drawn(rng.permutation(len(train)))
        images = np.concatenate([train[kept], test])
        labels = np.concatenate([answers[kept], test_answers]).astype(np.int32)
        return RawDataset(images, labels, np.arange(len(images)) >= len(kept), tuple(classes), *statistics)


def cifar(spec: Official, kind: Any, rng: np.random.Generator, statistics: Statistics) -> RawDataset:
    """`kind` is torchvision's CIFAR10 or CIFAR100. They are pickles, so that only bytes with the official md5 are loaded."""
    from torchvision.datasets.utils import check_integrity

    root, folder = Path(spec.root), Path(spec.root) / kind.base_folder
    files = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]

    def bring() -> None:
        with spec.fetched(root / kind.filename, kind.url, kind.tgz_md5).open("rb") as archive:
            downloads.unpacked(archive, folder)

    spec.provide(lambda: all(check_integrity(folder / name, md5) for name, md5 in files), bring)
    with understood(folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*align should be passed")  # pickled by the numpy of 2009
        train, test = kind(spec.root, train=True), kind(spec.root, train=False)
    parts = [(part.data.transpose(0, 3, 1, 2), np.array(part.targets)) for part in (train, test)]
    return spec.split(parts, train.classes, rng, statistics)


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """torchvision reads the files beneath `path`, and refuses in many ways what it does not know."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError, EOFError, OSError) as error:
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(f"{path}: not the official files ({why}); delete it, and it is made anew") from error
