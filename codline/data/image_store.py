"""The image store: every image once, in one memory-mapped Arrow file. Small images raw; large ones as the files they were, decoded when they are taken."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from PIL import Image

from codline.core.errors import DataError
from codline.data import tables
from codline.data.array_store import Batches, Portion, Views
from codline.data.decoding import THREADS, Shape, ahead, decoded

BATCH = 4096  # images in a record batch, at most: large enough to be quick, small enough to ingest in bounded memory
BYTES = 4 * 2**20  # of a record batch, or one image more
LARGEST = 128  # pixels a side of an image that is stored raw
CACHE = 2**30  # bytes of decoded images kept by an open store
HANDFUL, SMALL = 32, 2**16  # images that are worked on together, and the bytes of their files, at most
TINY = 2**12  # bytes of a file that no thread is asked to decode: threads would wait for each other most of the time
COUNTED = 2**19  # bytes of pixels whose values are counted together
HEARD = 256  # images between two notes of progress


class Files(Protocol):
    """What a dataset gives instead of an array: codline.datasets.base.Encoded."""

    @property
    def count(self) -> int: ...
    @property
    def read(self) -> Callable[[int], bytes]: ...
    @property
    def name(self) -> Callable[[int], str]: ...
    @property
    def shape(self) -> Shape: ...


@dataclass(frozen=True)
class Stored:
    hashes: (
        np.ndarray
    )  # sha256 of every image, in hexadecimal bytes: of its pixels where they are stored raw, else of its file
    counts: np.ndarray  # of the 256 values, per channel, in the images that count


def schema(shape: tuple[int, ...], encoded: bool = False) -> pa.Schema:
    kind = pa.binary() if encoded else pa.list_(pa.uint8(), int(np.prod(shape)))
    return tables.with_metadata(pa.schema([tables.ID, pa.field("image", kind, nullable=False)]), {"shape": list(shape)})


def write(
    path: Path,
    ids: np.ndarray,
    images: np.ndarray | Files,
    counted: np.ndarray | None = None,
    advance: Callable[[int], None] | None = None,
) -> Stored:
    """Store uint8 images of shape (N, channels, height, width), or files, under ascending ids.

    In the same pass: what every image's content is called, and how frequent each value is in the rows where `counted` is true.
    """
    shape = shape_of(images)
    encoded = not isinstance(images, np.ndarray) and max(shape[1:]) > LARGEST
    layout, hashes, tally = schema(shape, encoded), np.empty(len(ids), "S64"), Tally(shape)
    done = 0
    with tables.stream(path, layout) as writer:
        batch = (
            FileBatch(writer, layout)
            if encoded
            else Portion(writer, layout, shape, min(BATCH, -(-BYTES // int(np.prod(shape)))))
        )
        for files, pixels in portions(images):
            before, done = done, done + len(pixels)
            cells: Any = files if encoded else pixels
            hashes[before:done] = [hashlib.sha256(cell).hexdigest() for cell in cells]
            batch.add(ids[before:done], cells)
            if counted is not None:
                tally.add(pixels[counted[before:done]])
            if advance is not None and (before // HEARD < done // HEARD or done == len(ids)):
                advance(done)
        batch.flush()
    return Stored(hashes, tally.found())


class FileBatch:
    """Files of a record batch, until there are enough."""

    def __init__(self, writer: pa.RecordBatchFileWriter, layout: pa.Schema) -> None:
        self.writer, self.layout, self.size = writer, layout, 0
        self.ids: list[int] = []
        self.files: list[bytes] = []

    def add(self, ids: np.ndarray, files: list[bytes]) -> None:
        for row, file in zip(ids.tolist(), files, strict=True):
            self.ids.append(row)
            self.files.append(file)
            self.size += len(file)
            if self.size >= BYTES or len(self.ids) == BATCH:
                self.flush()

    def flush(self) -> None:
        if self.ids:
            self.writer.write_batch(
                pa.record_batch([pa.array(self.ids, pa.int64()), pa.array(self.files, pa.binary())], schema=self.layout)
            )
        self.ids, self.files, self.size = [], [], 0


def shape_of(images: np.ndarray | Files) -> Shape:
    channels, height, width = images.shape[1:] if isinstance(images, np.ndarray) else images.shape
    return int(channels), int(height), int(width)


def portions(images: np.ndarray | Files) -> Iterator[tuple[list[bytes], np.ndarray]]:
    """All images, some at a time: their files, if they are files, and their pixels in one piece. Files are read one at a time, decoded several at a time."""
    if isinstance(images, np.ndarray):
        yield from (
            ([], np.ascontiguousarray(images[start : start + HANDFUL])) for start in range(0, len(images), HANDFUL)
        )
        return

    def opened(some: list[tuple[int, bytes]]) -> tuple[list[bytes], np.ndarray]:
        pixels = np.empty((len(some), *images.shape), np.uint8)
        for place, (row, data) in enumerate(some):
            pixels[place] = decoded_of(row, data)
        return [data for _, data in some], pixels

    def decoded_of(row: int, data: bytes) -> np.ndarray:
        try:
            return decoded(data, images.shape)
        except DataError as error:
            raise DataError(f"{images.name(row)}: {error}") from error

    files = handfuls((row, images.read(row)) for row in range(images.count))
    with ThreadPoolExecutor(THREADS) as pool:
        yield from ahead(pool, opened, files, alone=lambda some: all(len(data) < TINY for _, data in some))


def handfuls(files: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Small files several at a time: to hand one to a thread takes as long as to decode it."""
    some: list[tuple[int, bytes]] = []
    size = 0
    for file in files:
        some.append(file)
        size += len(file[1])
        if len(some) == HANDFUL or size >= SMALL:
            yield some
            some, size = [], 0
    if some:
        yield some


class Tally:
    """How often each of the 256 values is in each channel. Pillow counts bytes as they are, in half the time of bincount, which makes integers of them."""

    def __init__(self, shape: Shape) -> None:
        channels, self.height, self.width = shape
        self.counts, self.waiting = np.zeros((channels, 256), np.int64), 0
        self.planes = np.empty((channels, max(1, COUNTED // int(np.prod(shape))), self.height, self.width), np.uint8)

    def add(self, pixels: np.ndarray) -> None:
        while len(pixels):
            room = self.planes[:, self.waiting : self.waiting + len(pixels)]
            room[:] = pixels[: room.shape[1]].transpose(1, 0, 2, 3)
            self.waiting, pixels = self.waiting + room.shape[1], pixels[room.shape[1] :]
            if self.waiting == self.planes.shape[1]:
                self.count()

    def count(self) -> None:
        if self.waiting:
            for counts, plane in zip(self.counts, self.planes[:, : self.waiting], strict=True):
                counts += Image.frombuffer(
                    "L", (self.width, self.height * self.waiting), plane, "raw", "L", 0, 1
                ).histogram()
        self.waiting = 0

    def found(self) -> np.ndarray:
        self.count()
        return self.counts


def counts(images: np.ndarray | Files, counted: np.ndarray) -> np.ndarray:
    tally, done = Tally(shape_of(images)), 0
    for _, pixels in portions(images):
        tally.add(pixels[counted[done : done + len(pixels)]])
        done += len(pixels)
    return tally.found()


def moments(counts: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, of values scaled to [0, 1]. From counts, so exact in any order."""
    values, found = np.arange(256) / 255, []
    for of_channel in counts:
        mean = float(of_channel @ values / of_channel.sum())
        found.append((round(mean, 6), round(float(np.sqrt(of_channel @ (values - mean) ** 2 / of_channel.sum())), 6)))
    return [mean for mean, _ in found], [std for _, std in found]


class Encoded(Batches):
    """Files, decoded when they are taken, by several threads; the last ones taken are kept decoded, up to `cache` bytes."""

    def __init__(self, path: Path, shape: Shape, cache: int = CACHE) -> None:
        super().__init__(path, schema(shape, encoded=True))
        self.shape, self.room = shape, cache // int(np.prod(shape))
        self.kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self.pool: ThreadPoolExecutor | None = None
        self.batch = lru_cache(16)(self.read)  # views of the file

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The images of these ids, in their order, as one new array."""
        batch_of, rows = self.located(ids)
        places = {int(i): (batch, row) for i, batch, row in zip(ids, batch_of.tolist(), rows.tolist(), strict=True)}
        missing = [i for i in places if i not in self.kept]
        fresh = dict(zip(missing, self.threads().map(lambda i: self.decoded(i, *places[i]), missing), strict=True))
        taken = np.empty((len(ids), *self.shape), np.uint8)
        for row, i in enumerate(ids.tolist()):
            taken[row] = fresh[i] if i in fresh else self.kept[i]
        self.keep(places, fresh)
        return taken

    def decoded(self, i: int, batch: int, row: int) -> np.ndarray:
        data = self.batch(batch)["image"][row].as_py()
        self.passed(len(data))
        try:
            return decoded(data, self.shape)
        except DataError as error:
            raise DataError(f"{self.path}: id {i}: {error}; delete it and run again") from error

    def keep(self, taken: dict[int, tuple[int, int]], fresh: dict[int, np.ndarray]) -> None:
        for i in list(taken)[-self.room :] if self.room else []:
            self.kept[i] = fresh[i] if i in fresh else self.kept.pop(i)
        while len(self.kept) > self.room:
            self.kept.popitem(last=False)

    def threads(self) -> ThreadPoolExecutor:
        if self.pool is None:  # not before it is needed: a thread does not survive a fork
            self.pool = ThreadPoolExecutor(THREADS)
        return self.pool


def opened(path: Path, cache: int = CACHE) -> Views | Encoded:
    with tables.opened(path):
        found = tables.mapped(path)[0].schema
        shape = tuple(tables.metadata(found).get("shape", ()))
    if len(shape) != 3:
        raise DataError(
            f"{path}: expected images with their shape (channels, height, width), found none; run prepare again"
        )
    if "image" in found.names and found.field("image").type == pa.binary():
        return Encoded(path, shape, cache)
    return Views(path, "image", shape, schema(shape))
