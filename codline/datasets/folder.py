"""A folder of images, with one subfolder per class or a labels.csv; any format and size, labels may be missing."""

import hashlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator

from codline.core.errors import LISTED_NAMES, DataError, first_names
from codline.core.files import user_path
from codline.core.params_errors import format_value
from codline.data.csv_input import read_csv_rows
from codline.data.decoding import THREADS, Shape, bounded_map, image_suffixes, inspect_image
from codline.data.draws import draw, draw_key
from codline.data.folder_walk import list_files, os_reason
from codline.data.identity import DIGEST, Conflicts, DistinctImages, find_distinct_images
from codline.data.image_store import MAX_RAW_SIDE, PROGRESS_IMAGES
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import MIN_SIDE, DatasetSpec, ImageSize, UserPath, height_and_width
from codline.runtime import state_directory
from codline.runtime.progress import progress_bar

DEFAULT_SIDE = 224  # pixels
# Formats of pictures that are not decoded, and what to do about them.
UNSUPPORTED = {
    *(".heic", ".heif", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2", ".raf"),
    *(".svg", ".eps", ".ai", ".xcf", ".psd", ".ico", ".icns", ".dds", ".xpm", ".wmf", ".emf", ".fits"),
}
CONVERT = "convert them to JPEG, for example with ImageMagick: mogrify -format jpg *.heic"


def validate_test(value: Any) -> Any:
    is_share = isinstance(value, float) and 0 < value < 1
    if not is_share and not (isinstance(value, str) and value):
        raise ValueError(
            "a share of the labelled images (more than 0, less than 1), "
            "or the name of a folder or of a split in labels.csv"
        )
    return value


@dataclass(frozen=True, slots=True)  # slots, because there may be millions
class ImageEntry:
    file: str  # relative to the folder, with /
    label: str | None
    split: str | None = None


class InspectedFile(NamedTuple):
    shape: Shape
    digest: bytes  # SHA-256


class Folder(DatasetSpec):
    """Images are cropped to one size: their own if all have the same and it is small, else `size`."""

    name: Literal["folder"] = "folder"
    path: UserPath
    # csv file with the columns file, label and optionally split; default: labels.csv in `path`.
    labels: UserPath | None = None
    # Share of the labeled images, or name of a folder or split; default: "test" if there is one, else 0.2.
    test: Annotated[float | str, BeforeValidator(validate_test)] | None = None
    size: ImageSize | None = None  # default: 224, or the images' own
    channels: Literal["auto", 1, 3] = "auto"  # auto: 1 if all images are gray, else 3
    unreadable: Literal["refuse", "skip"] = "refuse"
    conflicts: Conflicts = "refuse"  # identical files with different labels

    def load(self, rng: np.random.Generator) -> RawDataset:
        root = user_path(self.path)
        files = list_files(root)
        csv = user_path(self.labels) if self.labels else root / "labels.csv"
        has_csv = self.labels is not None or csv.is_file()
        if has_csv:
            entries = entries_from_csv(root, csv, files)
        else:
            entries = entries_from_folders(root, files, self.test if isinstance(self.test, str) else None)
        del files
        inspected = self.inspect_files(root, [entry.file for entry in entries])
        entries = [entry for entry, found in zip(entries, inspected, strict=True) if found is not None]
        shapes = {found.shape for found in inspected if found is not None}
        digests = np.array([found.digest for found in inspected if found is not None], DIGEST)
        del inspected
        classes = class_names(root, csv if has_csv else None, entries)
        distinct = self.distinct_images(root, entries, digests, classes)
        is_test = self.test_split(root, distinct, entries, draw_key(rng))
        # An Arrow array takes a third of the memory of Python strings.
        names = pa.array([entries[row].file for row in distinct.rows], pa.string())

        def path(row: int) -> Path:
            return root / str(names[row])

        shape = self.common_shape(shapes)
        images = EncodedImages(len(names), lambda row: path(row).read_bytes(), shape, lambda row: str(path(row)))
        return RawDataset(images, distinct.labels, is_test, classes, content_ids=distinct.ids, files=distinct.files)

    def distinct_images(
        self, root: Path, entries: list[ImageEntry], digests: np.ndarray, classes: tuple[str, ...]
    ) -> DistinctImages:
        number_of: dict[str | None, int] = {None: -1} | {name: number for number, name in enumerate(classes)}
        labels = np.array([number_of[entry.label] for entry in entries], np.int32)
        split = self.split_name(entries)
        is_test = np.array([split is not None and entry.split == split for entry in entries])
        names = [entry.file for entry in entries]
        return find_distinct_images(str(root), names, digests, labels, is_test, classes.__getitem__, self.conflicts)

    def input_paths(self) -> dict[str, str]:
        paths = {"images": self.path} | ({"labels": self.labels} if self.labels else {})
        return {name: str(user_path(path)) for name, path in paths.items()}

    def inspect_files(self, root: Path, files: list[str]) -> list[InspectedFile | None]:
        """Shapes and digests of all images. Unreadable ones are refused all in one error, or skipped: None."""
        inspected: list[InspectedFile | None] = []
        unique: dict[Shape, Shape] = {}  # equal shapes share one tuple
        problems: dict[str, str] = {}
        with progress_bar("prepare", "files", len(files)) as advance, ThreadPoolExecutor(THREADS) as threads:
            results = bounded_map(threads, inspect_file, (root / file for file in files))
            for file, result in zip(files, results, strict=True):
                if isinstance(result, str):
                    problems[file] = result
                    inspected.append(None)
                else:
                    inspected.append(result._replace(shape=unique.setdefault(result.shape, result.shape)))
                if len(inspected) % PROGRESS_IMAGES == 0 or len(inspected) == len(files):
                    advance(len(inspected))
        state_directory.delete_note("unreadable", "prepare")
        if problems:
            state_directory.write_note("unreadable", "prepare", problems)
            self.report_problems(root, problems, len(files))
        return inspected

    def report_problems(self, root: Path, problems: dict[str, str], count: int) -> None:
        listed = first_names([f"{file}: {reason}" for file, reason in problems.items()])
        if len(problems) > LISTED_NAMES:
            listed += f" ({state_directory.state_root()}/unreadable/prepare.json lists them all)"
        sentence = f"{root}: {len(problems)} of {count} images cannot be used: {listed}"
        if self.unreadable == "refuse" or len(problems) == count:
            raise DataError(f"{sentence}; remove or repair them, or set prepare.dataset.unreadable=skip")
        logging.getLogger("codline").warning("%s; they are skipped", sentence)

    def split_name(self, entries: list[ImageEntry]) -> str | None:
        """The name of the test split; None if the test images are drawn."""
        if isinstance(self.test, float) or (self.test is None and not any(entry.split for entry in entries)):
            return None
        return self.test or "test"

    def test_split(self, root: Path, distinct: DistinctImages, entries: list[ImageEntry], key: int) -> np.ndarray:
        if (name := self.split_name(entries)) is None:
            return draw_test_split(root, distinct, self.test if isinstance(self.test, float) else 0.2, key)
        is_test = distinct.is_test
        if not is_test.any() or is_test.all():
            which = "nothing but" if is_test.any() else "no"
            splits = sorted({entry.split for entry in entries if entry.split})
            raise DataError(
                f"{root}: found {which} test images (looked for {name}, found {first_names(splits) or 'no split'}); "
                "prepare.dataset.test may name another"
            )
        if (unlabeled := distinct.rows[is_test & (distinct.labels < 0)]).size:
            raise DataError(
                f"{root}: {len(unlabeled)} test images have no label, such as {entries[unlabeled[0]].file}; "
                "expected one for each"
            )
        return is_test

    def common_shape(self, shapes: set[Shape]) -> Shape:
        channels = max(shape[0] for shape in shapes) if self.channels == "auto" else self.channels
        sizes = {shape[1:] for shape in shapes}
        own = next(iter(sizes))
        if self.size or len(sizes) > 1 or max(own) > MAX_RAW_SIDE:
            return channels, *height_and_width(self.size or DEFAULT_SIDE)
        return channels, *own


def draw_test_split(root: Path, distinct: DistinctImages, share: float, key: int) -> np.ndarray:
    labeled = distinct.labels >= 0
    is_test = np.zeros(len(labeled), bool)
    is_test[labeled] = draw(share, distinct.ids[labeled], distinct.labels[labeled], key, by_content=True)
    if is_test.sum() == labeled.sum():
        raise DataError(
            f"{root}: {share:g} of {labeled.sum()} labelled images leaves none for training, "
            "expected at least one there and one for testing"
        )
    return is_test


def inspect_file(path: Path) -> InspectedFile | str:
    """The shape and SHA-256 of an image file, or why it cannot be used."""
    try:
        content = path.read_bytes()
        shape = inspect_image(content)
    except OSError as error:
        return f"cannot be read ({os_reason(error)})"
    except DataError as error:
        return f"{error}; {CONVERT}" if suffix(path.name) in UNSUPPORTED else str(error)
    if min(shape[1:]) < MIN_SIDE:
        return f"{shape[1]}x{shape[2]} pixels, expected at least {MIN_SIDE} a side"
    return InspectedFile(shape, hashlib.sha256(content).digest())


def image_files(root: Path, files: list[str], listed: Collection[str] = (), csv: Path | None = None) -> list[str]:
    """Files that are listed in the csv or have the suffix of an image. Tells of all others, of pictures by name."""
    csv_name = None if csv is None else relative_name(root, str(csv))
    images = [file for file in files if file in listed or is_image(file)]
    others = [file for file in files if file not in listed and file != csv_name and not is_image(file)]
    unsupported = [file for file in others if suffix(file) in UNSUPPORTED and not is_hidden(file)]
    if unsupported and images:
        sentence = "%s: pictures that cannot be read are left out (%d): %s; %s"
        logging.getLogger("codline").warning(sentence, root, len(unsupported), first_names(unsupported), CONVERT)
    ignored = Counter(
        "hidden" if is_hidden(file) else suffix(file) or "without a suffix"
        for file in others
        if is_hidden(file) or suffix(file) not in UNSUPPORTED
    )
    if ignored:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(ignored.items()))
        logging.getLogger("codline").warning("%s: %d images; ignored: %s", root, len(images), counts)
    if not images:
        found = f"found no image in it or its folders (other files: {len(files)})"
        cure = f"; {CONVERT} ({first_names(unsupported)})" if unsupported else ""
        raise DataError(f"{root}: {found}; expected images, such as .jpg or .png{cure}")
    return images


def is_image(file: str) -> bool:
    return not is_hidden(file) and suffix(file) in image_suffixes()


def is_hidden(file: str) -> bool:
    return file.rpartition("/")[2].startswith(".")


def suffix(file: str) -> str:
    return PurePosixPath(file).suffix.lower()


def entries_from_folders(root: Path, files: list[str], test: str | None) -> list[ImageEntry]:
    """The top folder is the class, or the split if these are train and test (or the given name), with classes beneath.

    Images in no folder have no label.
    """
    images = image_files(root, files)
    tops = {top for image in images if (top := first_folders(image)[0])}
    name = test or "test"
    if name not in tops or not (test or "train" in tops):
        return [ImageEntry(image, first_folders(image)[0]) for image in images]
    if len(tops) != 2 or not all("/" in image for image in images):
        others = first_names(sorted(tops - {name})) if len(tops) != 2 else "images in no folder"
        raise DataError(
            f"{root}: found {name} and beside it {others}; "
            f"expected two folders, one of them {name}, with a folder per class in each"
        )
    return [ImageEntry(image, label, split) for image in images for split, label in [first_folders(image)]]


def first_folders(file: str) -> list[str | None]:
    """The first two folders of a path, None where there are fewer. Interned, because they repeat."""
    return [*map(sys.intern, file.split("/")[:-1]), None, None][:2]


def entries_from_csv(root: Path, csv: Path, files: list[str]) -> list[ImageEntry]:
    """Images that the csv does not list have no label."""
    entries: dict[str, ImageEntry] = {}
    existing = set(files)
    for line, row in read_csv_rows(csv, "file", "label"):
        file, label = relative_name(root, row["file"]), row["label"] or None
        if file not in existing:
            raise DataError(f"{csv}: line {line}: {format_value(row['file'])} is not in {root}")
        if file in entries and entries[file].label != label:
            raise DataError(
                f"{csv}: line {line}: {file} is labelled {label or 'nothing'}, "
                f"further up {entries[file].label or 'nothing'}; expected one label"
            )
        entries[file] = ImageEntry(file, label, row.get("split") or None)
    has_splits = any(entry.split for entry in entries.values())
    images = image_files(root, files, entries, csv)
    result = [entries.get(image) or ImageEntry(image, None) for image in images]
    if not has_splits and {image.split("/")[0] for image in images} == {"train", "test"}:
        return [ImageEntry(entry.file, entry.label, entry.file.split("/")[0]) for entry in result]
    return result


def relative_name(root: Path, file: str) -> str:
    """The path relative to the folder; the csv may have it absolute, relative to the working directory, or with \\."""
    path = Path(file.replace("\\", "/"))
    if path.is_absolute():
        return Path(os.path.relpath(path, root.absolute())).as_posix()
    is_found = os.path.exists(root / path)  # noqa: PTH110 (Path.exists raises for a name that is too long)
    return (path if is_found or not path.is_relative_to(root) else path.relative_to(root)).as_posix()


def class_names(root: Path, csv: Path | None, entries: list[ImageEntry]) -> tuple[str, ...]:
    classes = sorted({entry.label for entry in entries if entry.label is not None})
    if not classes:
        no_folders = f"{root}: {len(entries)} images, but no folder that would name their class"
        raise DataError(
            f"{f'{csv}: no image has a label' if csv else no_folders}; "
            "expected a folder per class, or a labels.csv with the columns file and label"
        )
    if len(classes) == 1:
        is_nested = csv is None and any(entry.file.count("/") > 1 for entry in entries)
        hint = f"; are the classes the folders in {root / classes[0]}?" if is_nested else ""
        raise DataError(f"{csv or root}: found one class, {classes[0]}, expected at least two{hint}")
    return tuple(classes)
