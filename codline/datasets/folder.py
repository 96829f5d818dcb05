"""Your own images: a folder with one folder per class, or with a labels.csv; any format, any size, some of them without a label."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator

from codline.core.errors import DataError
from codline.data.csv_input import read
from codline.data.decoding import THREADS, Shape, ahead, inspected, suffixes
from codline.data.image_store import HEARD, LARGEST
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import SMALLEST, DatasetSpec, Size, sides
from codline.runtime import state_directory
from codline.runtime.progress import bar

SIDE = 224  # of photographs, unless told otherwise
NAMED = 5  # files named in a sentence


def share_or_folder(value: Any) -> Any:
    is_share = isinstance(value, float) and 0 < value < 1
    if not is_share and not (isinstance(value, str) and value):
        raise ValueError(
            "a share of the labelled images (more than 0, less than 1), or the name of a folder or of a split in labels.csv"
        )
    return value


@dataclass(frozen=True, slots=True)  # there may be millions
class Picture:
    file: str  # relative to the folder, with /
    label: str | None
    split: str | None = None


class Folder(DatasetSpec):
    """Images are cut to one size: their own if all have the same and it is small, else `size`."""

    name: Literal["folder"] = "folder"
    path: str
    labels: str | None = (
        None  # a csv with the columns file and label, perhaps split; labels.csv in the folder, if left out
    )
    test: Annotated[float | str, BeforeValidator(share_or_folder)] | None = (
        None  # left out: the folder or split named test, else 0.2
    )
    size: Size | None = None  # left out: 224, or the images' own
    channels: Literal["auto", 1, 3] = "auto"  # 1 if all images are grey, else 3
    unreadable: Literal["refuse", "skip"] = "refuse"

    def load(self, rng: np.random.Generator) -> RawDataset:
        root = Path(self.path)
        files = found(root)
        sheet = Path(self.labels) if self.labels else root / "labels.csv"
        listed = self.labels is not None or sheet.is_file()
        pictures = (
            in_sheet(root, sheet, files)
            if listed
            else in_tree(root, files, self.test if isinstance(self.test, str) else None)
        )
        del files
        shapes = self.usable(root, [picture.file for picture in pictures])
        pictures = [picture for picture, shape in zip(pictures, shapes, strict=True) if shape is not None]
        classes = named(root, sheet if listed else None, pictures)
        number = {name: i for i, name in enumerate(classes)}
        labels = np.array(
            [number[picture.label] if picture.label is not None else -1 for picture in pictures], np.int32
        )
        is_test = self.split(root, pictures, labels, rng)
        shape = self.shape({shape for shape in shapes if shape is not None})
        names = pa.array(
            [os.fsencode(picture.file) for picture in pictures], pa.binary()
        )  # a third of what strings of Python's take

        def place(row: int) -> Path:
            return root / os.fsdecode(names[row].as_py())

        images = EncodedImages(len(names), lambda row: place(row).read_bytes(), shape, lambda row: str(place(row)))
        return RawDataset(images, labels, is_test, classes)

    def usable(self, root: Path, files: list[str]) -> list[Shape | None]:
        """The shape of every file, where it can be read. All others are refused, or skipped, together."""
        shapes: list[Shape | None] = []
        same: dict[Shape, Shape] = {}  # a shape that most files have need not be kept for each
        broken: dict[str, str] = {}
        with bar("prepare", "files", len(files)) as advance, ThreadPoolExecutor(THREADS) as pool:
            for file, what in zip(files, ahead(pool, looked_at, (root / file for file in files)), strict=True):
                shapes.append(None if isinstance(what, str) else same.setdefault(what, what))
                if isinstance(what, str):
                    broken[file] = what
                if len(shapes) % HEARD == 0 or len(shapes) == len(files):
                    advance(len(shapes))
        state_directory.note("unreadable", "prepare", broken or None)
        if broken:
            sentence = f"{root}: {len(broken)} of {len(files)} images cannot be used: {several([f'{file}: {why}' for file, why in broken.items()])}"
            listed = (
                f" ({state_directory.root()}/unreadable/prepare.json lists them all)" if len(broken) > NAMED else ""
            )
            if self.unreadable == "refuse" or len(broken) == len(files):
                raise DataError(f"{sentence}{listed}; remove or repair them, or set prepare.dataset.unreadable=skip")
            logging.warning("%s%s; they are skipped", sentence, listed)
        return shapes

    def split(self, root: Path, pictures: list[Picture], labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        splits = sorted({picture.split for picture in pictures if picture.split})
        if isinstance(self.test, float) or (self.test is None and not splits):
            return drawn(root, labels, self.test if isinstance(self.test, float) else 0.2, rng)
        name = self.test or "test"
        is_test = np.array([picture.split == name for picture in pictures])
        if not is_test.any() or is_test.all():
            few = "no" if not is_test.any() else "nothing but"
            raise DataError(
                f"{root}: found {few} test images (looked for {name}, found {several(splits) or 'no split'}); prepare.dataset.test may name another"
            )
        if (unknown := np.flatnonzero(is_test & (labels < 0))).size:
            raise DataError(
                f"{root}: {len(unknown)} test images have no label, such as {pictures[unknown[0]].file}; expected one for each"
            )
        return is_test

    def shape(self, shapes: set[Shape]) -> Shape:
        channels = max(shape[0] for shape in shapes) if self.channels == "auto" else self.channels
        sizes = {shape[1:] for shape in shapes}
        own = next(iter(sizes))
        height, width = sides(self.size or SIDE) if self.size or len(sizes) > 1 or max(own) > LARGEST else own
        return channels, height, width


def drawn(root: Path, labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """So many of the labelled images are for testing."""
    known = np.flatnonzero(labels >= 0)
    count = round(share * len(known))
    if not 0 < count < len(known):
        raise DataError(
            f"{root}: {share:g} of {len(known)} labelled images leaves {count} for testing, expected at least one there and one in the pool"
        )
    is_test = np.zeros(len(labels), bool)
    is_test[rng.permutation(known)[:count]] = True
    return is_test


def looked_at(path: Path) -> Shape | str:
    """The shape of an image, or why it cannot be used."""
    try:
        shape = inspected(path.read_bytes())
    except OSError as error:
        return f"cannot be read ({os.strerror(error.errno) if error.errno else error})"
    except DataError as error:
        return str(error)
    small = min(shape[1:]) < SMALLEST
    return f"{shape[1]}x{shape[2]} pixels, expected at least {SMALLEST} a side" if small else shape


def several(names: list[str]) -> str:
    """The first of them, and how many more."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def found(root: Path) -> list[str]:
    """Every file, relative to the folder, in the order of their names."""
    if not root.exists():
        raise DataError(f"{root}: not found; prepare.dataset.path names it, from {Path.cwd()}")
    if not root.is_dir():
        raise DataError(
            f"{root}: a file; expected a folder with images (for a Parquet file: prepare.dataset={{name: parquet, ...}})"
        )
    return sorted(walked(root, "", ()))


def walked(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Files under a folder, links followed."""
    try:
        status, names = folder.stat(), os.listdir(folder)  # noqa: PTH208 (paths of their own would take 400 bytes each)
    except OSError as error:
        raise DataError(
            f"{folder}: this folder cannot be read ({os.strerror(error.errno) if error.errno else error})"
        ) from error
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise DataError(
            f"{folder}: a link to a folder that it lies in itself, so there is no end to it; remove the link"
        )
    for name in names:
        if not os.path.isdir(f"{folder}/{name}"):  # noqa: PTH112 (Path.is_dir raises where a link leads to itself)
            yield f"{prefix}{name}"
        elif not name.startswith("."):
            yield from walked(folder / name, f"{prefix}{name}/", (*above, here))


def pictured(root: Path, files: list[str], listed: Collection[str] = (), sheet: Path | None = None) -> list[str]:
    """Those that are listed, or are images by their names; the rest is counted, once."""
    itself = None if sheet is None else spelled(root, str(sheet))
    images = [file for file in files if file in listed or is_image(file)]
    others = (file for file in files if file not in listed and file != itself and not is_image(file))
    rest = Counter(
        "hidden" if hidden(file) else PurePosixPath(file).suffix.lower() or "without a suffix" for file in others
    )
    if rest:
        logging.warning(
            "%s: %d images; ignored: %s",
            root,
            len(images),
            ", ".join(f"{count} {kind}" for kind, count in sorted(rest.items())),
        )
    if not images:
        found = f"{len(files)} files, but no image" if files else "no file"
        raise DataError(f"{root}: found {found} in it or its folders; expected images, such as .jpg or .png")
    return images


def is_image(file: str) -> bool:
    return not hidden(file) and PurePosixPath(file).suffix.lower() in suffixes()


def hidden(file: str) -> bool:
    return file.rpartition("/")[2].startswith(".")


def in_tree(root: Path, files: list[str], test: str | None) -> list[Picture]:
    """The first folder of a path is its class, beneath train/ and test/ if these are there; what lies in none has no label."""
    images = pictured(root, files)
    tops = {top for image in images if (top := folders(image)[0])}
    name = test or "test"
    if name not in tops or not (test or "train" in tops):
        return [Picture(image, folders(image)[0]) for image in images]
    if len(tops) != 2 or not all("/" in image for image in images):
        others = several(sorted(tops - {name})) if len(tops) != 2 else "images in no folder"
        raise DataError(
            f"{root}: found {name} and beside it {others}; expected two folders, one of them {name}, with a folder per class in each"
        )
    return [Picture(image, folders(image)[1], folders(image)[0]) for image in images]


def folders(file: str) -> list[str | None]:
    """The first two that it lies in, None where there are fewer."""
    return [*map(sys.intern, file.split("/")[:-1]), None, None][:2]


def in_sheet(root: Path, sheet: Path, files: list[str]) -> list[Picture]:
    """Labels from a csv; images that it does not list have none."""
    rows: dict[str, Picture] = {}
    everything = set(files)
    for line, row in read(sheet, "file", "label"):
        file, label = spelled(root, row["file"]), row["label"] or None
        if file not in everything:
            raise DataError(f"{sheet}: line {line}: {row['file']!r} is not in {root}")
        if file in rows and rows[file].label != label:
            raise DataError(
                f"{sheet}: line {line}: {file} is labelled {label or 'nothing'}, further up {rows[file].label or 'nothing'}; expected one label"
            )
        rows[file] = Picture(file, label, row.get("split") or None)
    images = pictured(root, files, rows, sheet)
    tops = {PurePosixPath(file).parts[0] for file in images}
    if tops == {"train", "test"} and not any(picture.split for picture in rows.values()):
        return [
            Picture(file, rows[file].label if file in rows else None, PurePosixPath(file).parts[0]) for file in images
        ]
    return [rows.get(file, Picture(file, None)) for file in images]


def spelled(root: Path, file: str) -> str:
    """A file as it is called within the folder, however the csv spells it."""
    path = Path(file.replace("\\", "/"))
    if path.is_absolute():
        return Path(os.path.relpath(path, root.absolute())).as_posix()
    return (path if (root / path).exists() or not path.is_relative_to(root) else path.relative_to(root)).as_posix()


def named(root: Path, sheet: Path | None, pictures: list[Picture]) -> tuple[str, ...]:
    """The classes, in the order of their names."""
    classes = sorted({picture.label for picture in pictures if picture.label is not None})
    if not classes:
        where = (
            f"{sheet}: no image has a label"
            if sheet
            else f"{root}: {len(pictures)} images, but no folder that would name their class"
        )
        raise DataError(f"{where}; expected a folder per class, or a labels.csv with the columns file and label")
    if len(classes) == 1:
        inside = (
            f"; are the classes the folders in {root / classes[0]}?"
            if sheet is None and any(p.file.count("/") > 1 for p in pictures)
            else ""
        )
        raise DataError(f"{sheet or root}: found one class, {classes[0]}, expected at least two{inside}")
    return tuple(classes)
