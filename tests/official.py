"""Small datasets in the official file formats, with their checksums patched into torchvision's tables."""

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

TRAIN_PER_CLASS, TEST_PER_CLASS = 4, 2  # images of each class


def python2_pickle(value: Any) -> bytes:
    """Bytes as Python 2's cPickle wrote them (protocol 2, with memo numbers), so that official files can be rebuilt."""
    return b"\x80\x02" + b"".join(opcodes(value, count(1))) + b"."


def opcodes(value: Any, numbers: Iterator[int]) -> Iterator[bytes]:
    match value:
        case dict():
            yield b"}" + memoize(numbers) + b"("
            for key, item in value.items():
                yield from opcodes(key, numbers)
                yield from opcodes(item, numbers)
            yield b"u"
        case list():
            yield b"]" + memoize(numbers)
            for start in range(0, len(value), 1000):
                yield b"("
                for item in value[start : start + 1000]:
                    yield from opcodes(item, numbers)
                yield b"e"
        case str():
            yield b"U" + bytes([len(value)]) + value.encode() + memoize(numbers)
        case int():
            yield int_opcode(value)
        case np.ndarray():
            shape = int_opcode(value.shape[0]) + int_opcode(value.shape[1])
            yield b"cnumpy.core.multiarray\n_reconstruct\n" + memoize(numbers)
            yield b"cnumpy\nndarray\n" + memoize(numbers)
            yield b"K\x00\x85U\x01b\x87R" + memoize(numbers) + b"(K\x01" + shape + b"\x86"
            yield b"cnumpy\ndtype\n" + memoize(numbers) + b"U\x02u1K\x00K\x01\x87R" + memoize(numbers)
            yield b"(K\x03U\x01|NNN" + 2 * (b"J" + struct.pack("<i", -1)) + b"K\x00tb\x89T"
            yield struct.pack("<i", value.size) + value.tobytes() + b"tb"


def memoize(numbers: Iterator[int]) -> bytes:
    n = next(numbers)
    return b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<i", n)


def int_opcode(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def random_pixels(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8)


def balanced_labels(classes: int, each: int) -> np.ndarray:
    return np.tile(np.arange(classes), each)


def cifar_batch(rng: np.random.Generator, classes: int, each: int, key: str) -> dict[str, Any]:
    labels = balanced_labels(classes, each)
    return {
        "batch_label": "a batch",
        key: labels.tolist(),
        "data": random_pixels(rng, len(labels), 3072),
        "filenames": [f"{i}.png" for i in range(len(labels))],
    }


def write_cifar(
    folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator, kind: Any, classes: int, key: str
) -> None:
    """Only the archive: the dataset plug-in extracts it."""
    names = [f"class {number}" for number in range(classes)]
    files = {name: python2_pickle(cifar_batch(rng, classes, TRAIN_PER_CLASS, key)) for name, _ in kind.train_list}
    files |= {name: python2_pickle(cifar_batch(rng, classes, TEST_PER_CLASS, key)) for name, _ in kind.test_list}
    files[kind.meta["filename"]] = python2_pickle({kind.meta["key"]: names})
    archive = folder / kind.filename
    write_tar(archive, {f"{kind.base_folder}/{name}": content for name, content in files.items()})
    for table in ("train_list", "test_list"):
        patch.setattr(kind, table, [[name, md5_hex(files[name])] for name, _ in getattr(kind, table)])
    patch.setattr(kind, "meta", kind.meta | {"md5": md5_hex(files[kind.meta["filename"]])})
    patch.setattr(kind, "tgz_md5", downloads.md5_checksum(archive))


def write_cifar10(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    write_cifar(folder, patch, rng, datasets.CIFAR10, 10, "labels")


def write_cifar100(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    write_cifar(folder, patch, rng, datasets.CIFAR100, 100, "fine_labels")


def write_svhn(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """MATLAB files of (height, width, channels, N), in which the digit 0 has the label 10."""
    table = dict(datasets.SVHN.split_list)
    for split, each in {"train": TRAIN_PER_CLASS, "test": TEST_PER_CLASS}.items():
        url, name, _ = table[split]
        labels = balanced_labels(10, each)
        (folder / "svhn").mkdir(exist_ok=True)
        images, official_labels = random_pixels(rng, 32, 32, 3, len(labels)), np.where(labels == 0, 10, labels)
        scipy.io.savemat(folder / "svhn" / name, {"X": images, "y": official_labels.astype(np.uint8)[:, None]})
        table[split] = [url, name, downloads.md5_checksum(folder / "svhn" / name)]
    patch.setattr(datasets.SVHN, "split_list", table)


def write_fashion_mnist(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    raw, table = folder / "FashionMNIST" / "raw", []
    raw.mkdir(parents=True)
    for name, _ in datasets.FashionMNIST.resources:
        labels = balanced_labels(10, TRAIN_PER_CLASS if name.startswith("train") else TEST_PER_CLASS).astype(np.uint8)
        (raw / name).write_bytes(
            gzip.compress(encode_idx(random_pixels(rng, len(labels), 28, 28) if "images" in name else labels))
        )
        table.append((name, downloads.md5_checksum(raw / name)))
    patch.setattr(datasets.FashionMNIST, "resources", table)


def encode_idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_caltech101(folder: Path, patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """A zip with a tar of JPEG files of different sizes, some of them gray, and annotations that are not used."""
    tree = {
        "101_ObjectCategories/BACKGROUND_Google/tmp": b"",
        "101_ObjectCategories/BACKGROUND_Google/image_0001.jpg": random_jpeg(rng, 50, 60),
    }
    for kind in range(101):
        for picture in range(TRAIN_PER_CLASS + TEST_PER_CLASS):
            path = f"101_ObjectCategories/kind_{kind:03d}/image_{picture + 1:04d}.jpg"
            tree[path] = random_jpeg(rng, 20 + kind % 7, 30 + picture, gray=kind == 5)
    (folder / "caltech101").mkdir()
    archive = folder / "caltech101" / "caltech-101.zip"
    write_tar(folder / "tree.tar.gz", tree)
    with zipfile.ZipFile(archive, "w") as outer:
        outer.write(folder / "tree.tar.gz", "caltech-101/101_ObjectCategories.tar.gz")
        outer.writestr("caltech-101/Annotations.tar", b"")
    patch.setattr(caltech101, "MD5", downloads.md5_checksum(archive))
    patch.setattr(caltech101, "IMAGES", 101 * (TRAIN_PER_CLASS + TEST_PER_CLASS))


def random_jpeg(rng: np.random.Generator, height: int, width: int, gray: bool = False) -> bytes:
    file = io.BytesIO()
    Image.fromarray(random_pixels(rng, height, width) if gray else random_pixels(rng, height, width, 3)).save(
        file, "jpeg"
    )
    return file.getvalue()


def write_tar(archive: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def md5_hex(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


WRITERS = {
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "svhn": write_svhn,
    "fashion_mnist": write_fashion_mnist,
    "caltech101": write_caltech101,
}
SMALL_SPLITS = {"caltech101": {"test": 0.3}}


def write_dataset_files(name: str, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Write a dataset's files to a folder; return parameters for so few images."""
    WRITERS[name](folder, patch, np.random.default_rng(0))
    return {"root": str(folder), "download": False} | SMALL_SPLITS.get(name, {})
