"""The image store: all images in one memory-mapped Arrow file, small ones as raw pixels, large ones as image files."""

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
from codline.data.array_store import ChunkWriter, MappedArrays, MappedBatches
from codline.data.decoding import THREADS, Shape, bounded_map, decode_image

MAX_RAW_SIDE = 128  # pixels: images with a longer side are stored as files
MAX_BATCH_ROWS = 4096  # images in a record batch: large enough for speed, small enough to write in bounded memory
BATCH_BYTES = 4 * 2**20  # a record batch ends with the image that reaches this size
CACHE_BYTES = 2**30  # of decoded images that an open store keeps
CHUNK_IMAGES, CHUNK_BYTES = 32, 2**16  # limits of a chunk that one thread decodes: images, and bytes of their files
TINY_FILE_BYTES = 2**12  # smaller files are decoded by the calling thread, since threads would mostly wait for the GIL
HISTOGRAM_BYTES = 2**19  # of pixels that are counted together
PROGRESS_IMAGES = 256  # between two progress notes


class ImageFiles(Protocol):
    """Image files instead of an array; implemented by codline.data.raw_dataset.EncodedImages."""

    @property
    def count(self) -> int: ...
    @property
    def read(self) -> Callable[[int], bytes]: ...
    @property
    def name(self) -> Callable[[int], str]: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def resize(self) -> tuple[int, int] | None: ...


@dataclass(frozen=True)
class StoredImages:
    hashes: np.ndarray  # (N,) hexadecimal SHA-256 of each image's stored bytes: raw pixels, or the file
    pixel_counts: np.ndarray  # (channels, 256) how often each pixel value occurs in the counted images


def image_schema(shape: tuple[int, ...], encoded: bool = False, resize: tuple[int, int] | None = None) -> pa.Schema:
    """`resize` is recorded for files that are decoded when they are taken."""
    kind = pa.binary() if encoded else pa.list_(pa.uint8(), int(np.prod(shape)))
    metadata = {"shape": list(shape)} | ({"resize": list(resize)} if encoded and resize else {})
    return tables.with_metadata(pa.schema([tables.ID, pa.field("image", kind, nullable=False)]), metadata)


def write_images(
    path: Path,
    ids: np.ndarray,
    images: np.ndarray | ImageFiles,
    counted: np.ndarray | None = None,
    advance: Callable[[int], None] | None = None,
) -> StoredImages:
    """Store uint8 images of shape (N, channels, height, width), or N image files, under ascending ids.

    The same pass hashes every image and counts the pixel values of the rows where `counted` is true.
    `advance(number of images)` is called now and then.
    """
    shape = image_shape(images)
    encoded = not isinstance(images, np.ndarray) and max(shape[1:]) > MAX_RAW_SIDE
    resize = None if isinstance(images, np.ndarray) else images.resize
    schema, hashes, histogram = image_schema(shape, encoded, resize), np.empty(len(ids), "S64"), PixelHistogram(shape)
    end = 0
    with tables.arrow_writer(path, schema) as arrow:
        rows = min(MAX_BATCH_ROWS, -(-BATCH_BYTES // int(np.prod(shape))))
        writer = EncodedChunkWriter(arrow, schema) if encoded else ChunkWriter(arrow, schema, shape, rows)
        for files, pixels in decoded_chunks(images):
            start, end = end, end + len(pixels)
            cells: Any = files if encoded else pixels
            hashes[start:end] = [hashlib.sha256(cell).hexdigest() for cell in cells]
            writer.add(ids[start:end], cells)
            if counted is not None:
                histogram.add(pixels[counted[start:end]])
            if advance is not None and (start // PROGRESS_IMAGES < end // PROGRESS_IMAGES or end == len(ids)):
                advance(end)
        writer.flush()
    return StoredImages(hashes, histogram.counts())


class EncodedChunkWriter:
    """Collects image files and writes them in record batches of bounded size."""

    def __init__(self, writer: pa.RecordBatchFileWriter, schema: pa.Schema) -> None:
        self.writer, self.schema, self.size = writer, schema, 0
        self.ids: list[int] = []
        self.files: list[bytes] = []

    def add(self, ids: np.ndarray, files: list[bytes]) -> None:
        for image_id, file in zip(ids.tolist(), files, strict=True):
            self.ids.append(image_id)
            self.files.append(file)
            self.size += len(file)
            if self.size >= BATCH_BYTES or len(self.ids) == MAX_BATCH_ROWS:
                self.flush()

    def flush(self) -> None:
        if self.ids:
            columns = [pa.array(self.ids, pa.int64()), pa.array(self.files, pa.binary())]
            self.writer.write_batch(pa.record_batch(columns, schema=self.schema))
        self.ids, self.files, self.size = [], [], 0


def image_shape(images: np.ndarray | ImageFiles) -> Shape:
    channels, height, width = images.shape[1:] if isinstance(images, np.ndarray) else images.shape
    return int(channels), int(height), int(width)


def decoded_chunks(images: np.ndarray | ImageFiles) -> Iterator[tuple[list[bytes], np.ndarray]]:
    """Yield (files, pixels) of consecutive images; `files` is empty for an array.

    Files are read sequentially and decoded by several threads.
    """
    if isinstance(images, np.ndarray):
        for start in range(0, len(images), CHUNK_IMAGES):
            yield [], np.ascontiguousarray(images[start : start + CHUNK_IMAGES])
        return

    def decode_chunk(chunk: list[tuple[int, bytes]]) -> tuple[list[bytes], np.ndarray]:
        pixels = np.empty((len(chunk), *images.shape), np.uint8)
        for place, (row, data) in enumerate(chunk):
            try:
                pixels[place] = decode_image(data, images.shape, images.resize)
            except DataError as error:
                raise DataError(f"{images.name(row)}: {error}") from error
        return [data for _, data in chunk], pixels

    def is_tiny(chunk: list[tuple[int, bytes]]) -> bool:
        return all(len(data) < TINY_FILE_BYTES for _, data in chunk)

    chunks = file_chunks((row, images.read(row)) for row in range(images.count))
    with ThreadPoolExecutor(THREADS) as pool:
        yield from bounded_map(pool, decode_chunk, chunks, run_inline=is_tiny)


def file_chunks(files: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Group files for a thread: submitting a single small file would take as long as decoding it."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for file in files:
        chunk.append(file)
        size += len(file[1])
        if len(chunk) == CHUNK_IMAGES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class PixelHistogram:
    """Counts the 256 pixel values of each channel with Pillow, in half the time of numpy.bincount."""

    def __init__(self, shape: Shape) -> None:
        channels, self.height, self.width = shape
        self.totals, self.pending = np.zeros((channels, 256), np.int64), 0
        images = max(1, HISTOGRAM_BYTES // int(np.prod(shape)))
        self.buffer = np.empty((channels, images, self.height, self.width), np.uint8)

    def add(self, pixels: np.ndarray) -> None:
        while len(pixels):
            free = self.buffer[:, self.pending : self.pending + len(pixels)]
            added = free.shape[1]
            free[:] = pixels[:added].transpose(1, 0, 2, 3)
            self.pending, pixels = self.pending + added, pixels[added:]
            if self.pending == self.buffer.shape[1]:
                self.count_pending()

    def count_pending(self) -> None:
        if self.pending:
            size = (self.width, self.height * self.pending)
            for totals, plane in zip(self.totals, self.buffer[:, : self.pending], strict=True):
                totals += Image.frombuffer("L", size, plane, "raw", "L", 0, 1).histogram()
        self.pending = 0

    def counts(self) -> np.ndarray:
        """(channels, 256)"""
        self.count_pending()
        return self.totals


def pixel_counts(images: np.ndarray | ImageFiles, counted: np.ndarray) -> np.ndarray:
    """(channels, 256) how often each pixel value occurs in the rows where `counted` is true."""
    histogram, start = PixelHistogram(image_shape(images)), 0
    for _, pixels in decoded_chunks(images):
        histogram.add(pixels[counted[start : start + len(pixels)]])
        start += len(pixels)
    return histogram.counts()


def mean_and_std(counts: np.ndarray) -> tuple[list[float], list[float]]:
    """Per channel, of pixels scaled to [0, 1]. From counts, so that the order of the images does not matter."""
    values, means, stds = np.arange(256) / 255, list[float](), list[float]()
    for channel in counts:
        mean = float(channel @ values / channel.sum())
        means.append(round(mean, 6))
        stds.append(round(float(np.sqrt(channel @ (values - mean) ** 2 / channel.sum())), 6))
    return means, stds


class EncodedImageStore(MappedBatches):
    """Image files, decoded by several threads when they are taken. Keeps the last ones decoded, up to `cache` bytes."""

    def __init__(
        self, path: Path, shape: Shape, cache: int = CACHE_BYTES, resize: tuple[int, int] | None = None
    ) -> None:
        super().__init__(path, image_schema(shape, encoded=True, resize=resize))
        self.shape, self.resize, self.cache_capacity = shape, resize, cache // int(np.prod(shape))
        self.cache: OrderedDict[int, np.ndarray] = OrderedDict()
        self.pool: ThreadPoolExecutor | None = None
        self.cached_batch = lru_cache(16)(self.read_batch)  # views of the memory map

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The images of these ids, in their order, as one new array."""
        batches, rows = self.locate(ids)
        places = dict(zip(ids.tolist(), zip(batches.tolist(), rows.tolist(), strict=True), strict=True))
        missing = [i for i in places if i not in self.cache]
        decoded = dict(zip(missing, self.threads().map(lambda i: self.decode(i, *places[i]), missing), strict=True))
        taken = np.empty((len(ids), *self.shape), np.uint8)
        for row, i in enumerate(ids.tolist()):
            taken[row] = decoded[i] if i in decoded else self.cache[i]
        self.update_cache(list(places), decoded)
        return taken

    def decode(self, i: int, batch: int, row: int) -> np.ndarray:
        data = self.cached_batch(batch)["image"][row].as_py()
        self.count_read_bytes(len(data))
        try:
            return decode_image(data, self.shape, self.resize)
        except DataError as error:
            raise DataError(f"{self.path}: id {i}: {error}; delete it and run again") from error

    def update_cache(self, taken: list[int], decoded: dict[int, np.ndarray]) -> None:
        """Make the images just taken the most recently used ones."""
        for i in taken[-self.cache_capacity :] if self.cache_capacity else []:
            self.cache[i] = decoded[i] if i in decoded else self.cache.pop(i)
        while len(self.cache) > self.cache_capacity:
            self.cache.popitem(last=False)

    def threads(self) -> ThreadPoolExecutor:
        if self.pool is None:  # created on first use: threads do not survive a fork
            self.pool = ThreadPoolExecutor(THREADS)
        return self.pool


def open_image_store(path: Path, cache: int = CACHE_BYTES) -> MappedArrays | EncodedImageStore:
    with tables.translate_read_errors(path):
        schema = tables.map_arrow_file(path)[0].schema
        metadata = tables.read_metadata(schema)
        shape, resize = tuple(metadata.get("shape", ())), metadata.get("resize")
    if len(shape) != 3:
        expected = "expected images with their shape (channels, height, width), found none"
        raise DataError(f"{path}: {expected}; run prepare again")
    if "image" in schema.names and schema.field("image").type == pa.binary():
        return EncodedImageStore(path, shape, cache, tuple(resize) if resize else None)
    return MappedArrays(path, "image", shape, image_schema(shape))
