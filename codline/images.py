"""The image store: every image once, in one memory-mapped Arrow file. Small images raw; large ones as the files they were, decoded when they are taken."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from codline import tables
from codline.decoding import THREADS, Shape, ahead, decoded
from codline.errors import DataError
from codline.rows import Batches, Rows

BATCH = 4096  # images in a record batch, at most: large enough to be quick, small enough to ingest in bounded memory
BYTES = 16 * 2**20  # of a record batch, or one image more
LARGEST = 128  # pixels a side of an image that is stored raw
CACHE = 2**30  # bytes of decoded images kept by an open store
HANDFUL, SMALL = 16, 2**16  # files handed to a thread together, and their bytes, at most
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
    hashes: list[str]  # sha256 of every image: of its pixels where they are stored raw, else of its file
    counts: np.ndarray  # of the 256 values, per channel, in the images that count


def schema(shape: tuple[int, ...], encoded: bool = False) -> pa.Schema:
    kind = pa.binary() if encoded else pa.list_(pa.uint8(), int(np.prod(shape)))
    return tables.with_metadata(pa.schema([tables.ID, pa.field("image", kind, nullable=False)]), {"shape": list(shape)})


def write(path: Path, ids: np.ndarray, images: np.ndarray | Files, counted: np.ndarray | None = None, advance: Callable[[int], None] | None = None) -> Stored:
    """Store uint8 images of shape (N, channels, height, width), or files, under ascending ids.

    In the same pass: what every image's content is called, and how frequent each value is in the rows where `counted` is true.
    """
    shape = shape_of(images)
    encoded = not isinstance(images, np.ndarray) and max(shape[1:]) > LARGEST
    layout, hashes, counts = schema(shape, encoded), [], np.zeros((shape[0], 256), np.int64)
    with tables.stream(path, layout) as writer:
        batch = Batch(writer, layout)
        for row, (data, pixels) in enumerate(each(images)):
            cell = data if encoded else pixels.tobytes()
            hashes.append(hashlib.sha256(cell).hexdigest())
            batch.add(int(ids[row]), cell)
            if counted is not None and counted[row]:
                counts += frequencies(pixels)
            if advance is not None and ((row + 1) % HEARD == 0 or row + 1 == len(ids)):
                advance(row + 1)
        batch.flush()
    return Stored(hashes, counts)


class Batch:
    """Cells of a record batch, until there are enough."""

    def __init__(self, writer: pa.RecordBatchFileWriter, layout: pa.Schema) -> None:
        self.writer, self.layout, self.size = writer, layout, 0
        self.ids: list[int] = []
        self.cells: list[bytes] = []

    def add(self, row: int, cell: bytes) -> None:
        self.ids.append(row)
        self.cells.append(cell)
        self.size += len(cell)
        if self.size >= BYTES or len(self.ids) == BATCH:
            self.flush()

    def flush(self) -> None:
        if self.ids:
            kind, cells = self.layout.field("image").type, self.cells
            raw = pa.types.is_fixed_size_list(kind)
            column = pa.FixedSizeListArray.from_arrays(pa.array(np.frombuffer(b"".join(cells), np.uint8)), type=kind) if raw else pa.array(cells, kind)
            self.writer.write_batch(pa.record_batch([pa.array(self.ids, pa.int64()), column], schema=self.layout))
        self.ids, self.cells, self.size = [], [], 0


def shape_of(images: np.ndarray | Files) -> Shape:
    channels, height, width = images.shape[1:] if isinstance(images, np.ndarray) else images.shape
    return int(channels), int(height), int(width)


def each(images: np.ndarray | Files) -> Iterator[tuple[bytes, np.ndarray]]:
    """Every image: its file, empty where there is none, and its pixels. Files are read one at a time and decoded several at a time."""
    if isinstance(images, np.ndarray):
        yield from ((b"", pixels) for pixels in images)
        return

    def opened(some: list[tuple[int, bytes]]) -> list[tuple[bytes, np.ndarray]]:
        return [(data, decoded_of(row, data)) for row, data in some]

    def decoded_of(row: int, data: bytes) -> np.ndarray:
        try:
            return decoded(data, images.shape)
        except DataError as error:
            raise DataError(f"{images.name(row)}: {error}") from error

    with ThreadPoolExecutor(THREADS) as pool:
        for some in ahead(pool, opened, handfuls((row, images.read(row)) for row in range(images.count))):
            yield from some


def handfuls(files: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Small files several at a time: to hand one to a thread takes as long as to decode it."""
    some: list[tuple[int, bytes]] = []
    for file in files:
        some.append(file)
        if len(some) == HANDFUL or sum(len(data) for _, data in some) >= SMALL:
            yield some
            some = []
    if some:
        yield some


def frequencies(pixels: np.ndarray) -> np.ndarray:
    """Of the 256 values in each channel; all channels are counted at once, each from a multiple of 256 on."""
    channels = len(pixels)
    told_apart = pixels.reshape(channels, -1) + 256 * np.arange(channels)[:, None]
    return np.bincount(told_apart.reshape(-1), minlength=256 * channels).reshape(channels, 256)


def counts(images: np.ndarray | Files, counted: np.ndarray) -> np.ndarray:
    found = np.zeros((shape_of(images)[0], 256), np.int64)
    for row, (_, pixels) in enumerate(each(images)):
        if counted[row]:
            found += frequencies(pixels)
    return found


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
        data = self.batches[batch]["image"][row].as_py()
        self.touched(len(data))
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


def opened(path: Path, cache: int = CACHE) -> Rows | Encoded:
    with tables.opened(path):
        found = tables.mapped(path)[0].schema
        shape = tuple(tables.metadata(found).get("shape", ()))
    if len(shape) != 3:
        raise DataError(f"{path}: expected images with their shape (channels, height, width), found none; run prepare again")
    if "image" in found.names and found.field("image").type == pa.binary():
        return Encoded(path, shape, cache)
    return Rows(path, "image", shape, schema(shape))
