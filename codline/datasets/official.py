"""Base class of the public datasets that torchvision reads: downloads their files and draws a smaller pool."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt

from codline.core.errors import DataError, UserError
from codline.core.files import user_path
from codline.data import downloads
from codline.data.draws import draw_count, draw_key
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel
# Computed from the pool: the paper normalizes, but does not say with which numbers.
MEASURED: Statistics = ((), ())
# From main_TOD.py, transforms. The mean is CIFAR-10's; the deviation is the average of those within single images,
# which is smaller than the deviation of all pixels.
RELEASED_CIFAR: Statistics = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
LabeledImages = tuple[np.ndarray, np.ndarray]  # uint8 images (N, channels, height, width) and their labels (N,)


class OfficialDataset(DatasetSpec):
    root: str = "raw"  # directory of the downloaded files; not tracked by DVC
    download: bool = True  # fetch missing files
    # Number of training images that are used, drawn by class; validation images are taken from them. Default: all.
    pool: PositiveInt | None = None

    def ensure_files(self, is_complete: Callable[[], bool], download: Callable[[], object]) -> None:
        if not is_complete():
            with downloads.download_lock(user_path(self.root)):
                if not is_complete():  # another campaign may have downloaded them in the meantime
                    download()

    def fetch(self, path: Path, url: str, md5: str) -> Path:
        return downloads.fetch_file(path, url, md5, self.download)

    def draw_pool(self, rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Some of the training images' rows, ascending, as they are given. `labels` are theirs."""
        if self.pool is None:
            return rows
        if self.pool > len(rows):
            raise UserError(
                f"params.yaml: prepare.dataset.pool: found {self.pool}, but there are only {len(rows)} training images"
            )
        return np.compress(draw_count(self.pool, rows, labels, draw_key(rng)), rows)

    def assemble(
        self,
        train: LabeledImages,
        test: LabeledImages,
        classes: list[str],
        rng: np.random.Generator,
        statistics: Statistics = MEASURED,
    ) -> RawDataset:
        """The pool, drawn from the training images, followed by all test images."""
        rows = self.draw_pool(np.arange(len(train[0])), train[1], rng)
        images, labels = (np.concatenate([train[i][rows], test[i]]) for i in (0, 1))
        is_test = np.arange(len(images)) >= len(rows)
        return RawDataset(images, labels.astype(np.int32), is_test, tuple(classes), *statistics)


def load_cifar(spec: OfficialDataset, kind: Any, rng: np.random.Generator, statistics: Statistics) -> RawDataset:
    """`kind` is torchvision's CIFAR10 or CIFAR100. The files are pickles, so their md5 is checked first."""
    from torchvision.datasets.utils import check_integrity

    root = user_path(spec.root)
    folder = root / kind.base_folder
    files = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]

    def download() -> None:
        with spec.fetch(root / kind.filename, kind.url, kind.tgz_md5).open("rb") as archive:
            downloads.extract_directory(archive, folder)

    spec.ensure_files(lambda: all(check_integrity(folder / name, md5) for name, md5 in files), download)
    with translate_torchvision_errors(folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*align should be passed")  # pickled with numpy of 2009
        splits = kind(root, train=True), kind(root, train=False)
    train, test = ((split.data.transpose(0, 3, 1, 2), np.array(split.targets)) for split in splits)
    return spec.assemble(train, test, splits[0].classes, rng, statistics)


@contextmanager
def translate_torchvision_errors(path: Path) -> Iterator[None]:
    """Raises DataError for any error that torchvision raises for damaged files beneath `path`."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError, EOFError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(f"{path}: not the official files ({reason}); delete it, and it is made anew") from error
