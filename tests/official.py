"""Small files in the formats in which the public datasets come, and their checksums in torchvision's tables."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from PIL import Image
from torchvision import datasets

from codline.data import downloads
from codline.datasets import caltech101

TRAIN, TEST = 4, 2  # images of each class


def pickled(value: Any) -> bytes:
    """As Python 2's cPickle wrote it, protocol 2: what other references exist to gets a number, in the order of writing."""
    return b"\x80\x02" + b"".join(opcodes(value, count(1))) + b"."


def opcodes(value: Any, numbers: Iterator[int]) -> Iterator[bytes]:
    match value:
        case dict():
            yield b"}" + numbered(numbers) + b"("
            for key, item in value.items():
                yield from opcodes(key, numbers)
                yield from opcodes(item, numbers)
            yield b"u"
        case list():
            yield b"]" + numbered(numbers)
            for start in range(0, len(value), 1000):
                yield b"("
                for item in value[start : start + 1000]:
                    yield from opcodes(item, numbers)
                yield b"e"
        case str():
            yield b"U" + bytes([len(value)]) + value.encode() + numbered(numbers)
        case int():
            yield number(value)
        case np.ndarray():
            yield (
                b"cnumpy.core.multiarray\n_reconstruct\n" + numbered(numbers) + b"cnumpy\nndarray\n" + numbered(numbers)
            )
            yield (
                b"K\x00\x85U\x01b\x87R"
                + numbered(numbers)
                + b"(K\x01"
                + number(value.shape[0])
                + number(value.shape[1])
                + b"\x86"
            )
            yield b"cnumpy\ndtype\n" + numbered(numbers) + b"U\x02u1K\x00K\x01\x87R" + numbered(numbers)
            yield (
                b"(K\x03U\x01|NNN"
                + 2 * (b"J" + struct.pack("<i", -1))
                + b"K\x00tb\x89T"
                + struct.pack("<i", value.size)
                + value.tobytes()
                + b"tb"
            )


def numbered(numbers: Iterator[int]) -> bytes:
    n = next(numbers)
    return b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<i", n)


def number(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def pixels(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8)


def labelled(classes: int, each: int) -> np.ndarray:
    return np.tile(np.arange(classes), each)


def batch(rng: np.random.Generator, classes: int, each: int, key: str) -> dict[str, Any]:
    labels = labelled(classes, each)
    return {
        "batch_label": "a batch",
        key: labels.tolist(),
        "data": pixels(rng, len(labels), 3072),
        "filenames": [f"{i}.png" for i in range(len(labels))],
    }


def cifar(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator, kind: Any, classes: int, key: str) -> None:
    """The archive alone; it is the dataset's part to unpack it."""
    names = [f"class {number}" for number in range(classes)]
    files = {name: pickled(batch(rng, classes, TRAIN, key)) for name, _ in kind.train_list}
    files |= {name: pickled(batch(rng, classes, TEST, key)) for name, _ in kind.test_list}
    files[kind.meta["filename"]] = pickled({kind.meta["key"]: names})
    archive = folder / kind.filename
    archived(archive, {f"{kind.base_folder}/{name}": content for name, content in files.items()})
    for table in ("train_list", "test_list"):
        patch.setattr(kind, table, [[name, md5(files[name])] for name, _ in getattr(kind, table)])
    patch.setattr(kind, "meta", kind.meta | {"md5": md5(files[kind.meta["filename"]])})
    patch.setattr(kind, "tgz_md5", downloads.checksum(archive))


def cifar10(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    cifar(folder, patch, rng, datasets.CIFAR10, 10, "labels")


def cifar100(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    cifar(folder, patch, rng, datasets.CIFAR100, 100, "fine_labels")


def svhn(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """MATLAB files of (height, width, channels, N), where the digit 0 has the label 10."""
    table = dict(datasets.SVHN.split_list)
    for split, each in {"train": TRAIN, "test": TEST}.items():
        url, name, _ = table[split]
        labels = labelled(10, each)
        (folder / "svhn").mkdir(exist_ok=True)
        scipy.io.savemat(
            folder / "svhn" / name,
            {
                "X": pixels(rng, 32, 32, 3, len(labels)),
                "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None],
            },
        )
        table[split] = [url, name, downloads.checksum(folder / "svhn" / name)]
    patch.setattr(datasets.SVHN, "split_list", table)


def fashion_mnist(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    raw, table = folder / "FashionMNIST" / "raw", []
    raw.mkdir(parents=True)
    for name, _ in datasets.FashionMNIST.resources:
        labels = labelled(10, TRAIN if name.startswith("train") else TEST).astype(np.uint8)
        (raw / name).write_bytes(gzip.compress(idx(pixels(rng, len(labels), 28, 28) if "images" in name else labels)))
        table.append((name, downloads.checksum(raw / name)))
    patch.setattr(datasets.FashionMNIST, "resources", table)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def caltech(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """A zip with a tar of JPEG files in many sizes, some of them grey, beside annotations that nobody reads."""
    tree = {
        "101_ObjectCategories/BACKGROUND_Google/tmp": b"",
        "101_ObjectCategories/BACKGROUND_Google/image_0001.jpg": jpeg(rng, 50, 60),
    }
    for kind in range(101):
        for picture in range(TRAIN + TEST):
            tree[f"101_ObjectCategories/kind_{kind:03d}/image_{picture + 1:04d}.jpg"] = jpeg(
                rng, 20 + kind % 7, 30 + picture, grey=kind == 5
            )
    (folder / "caltech101").mkdir()
    archive = folder / "caltech101" / "caltech-101.zip"
    archived(folder / "tree.tar.gz", tree)
    with zipfile.ZipFile(archive, "w") as outer:
        outer.write(folder / "tree.tar.gz", "caltech-101/101_ObjectCategories.tar.gz")
        outer.writestr("caltech-101/Annotations.tar", b"")
    patch.setattr(caltech101, "MD5", downloads.checksum(archive))
    patch.setattr(caltech101, "IMAGES", 101 * (TRAIN + TEST))


def jpeg(rng: np.random.Generator, height: int, width: int, grey: bool = False) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(rng, height, width) if grey else pixels(rng, height, width, 3)).save(file, "jpeg")
    return file.getvalue()


def archived(archive: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


WRITERS = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "fashion_mnist": fashion_mnist,
    "caltech101": caltech,
}
SMALL = {
    "cifar10": {"validation": 20},
    "cifar100": {"validation": 40},
    "svhn": {"validation": 10},
    "fashion_mnist": {},
    "caltech101": {"validation": 30, "test": 0.3},
}


def written(name: str, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Write a dataset's files into a folder; return the parameters that suit so few images."""
    WRITERS[name](folder, patch, np.random.default_rng(0))
    return {"root": str(folder), "download": False} | SMALL[name]
