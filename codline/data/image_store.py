"""The image store, a directory of shards and their manifest: small images as raw pixels, large ones as image files."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.core.files import atomic_directory
from codline.data import tables
from codline.data.array_store import ChunkWriter, MappedArrays, MappedBatches
from codline.data.decoding import THREADS, decode_image
from codline.data.image_manifest import ImageManifest, read_manifest, write_manifest
from codline.data.image_shards import ImageShards, LocateShard, ShardWriter
from codline.data.pixel_statistics import PixelHistogram
from codline.data.raw_images import ImageFiles, decoded_chunks, image_shape

MAX_RAW_SIDE = 128  # pixels: images with a longer side are stored as files
MAX_BATCH_ROWS = 4096  # images in a record batch: large enough for speed, small enough to write in bounded memory
BATCH_BYTES = 4 * 2**20  # a record batch ends with the image that reaches this size
CACHE_BYTES = 2**30  # of decoded images that an open store keeps
PROGRESS_IMAGES = 256  # between two progress notes

StoredFile = tuple[MappedBatches, int, int]  # shard, record batch, row


@dataclass(frozen=True)
class StoredImages:
    hashes: np.ndarray  # (N,) hexadecimal SHA-256 of each image's stored bytes: raw pixels, or the file
    pixel_counts: np.ndarray  # (channels, 256) how often each pixel value occurs in the counted images


def image_schema(shape: tuple[int, ...], encoded: bool = False, resize: tuple[int, int] | None = None) -> pa.Schema:
    kind = pa.binary() if encoded else pa.list_(pa.uint8(), int(np.prod(shape)))
    metadata = {"shape": list(shape)} | ({"resize": list(resize)} if encoded and resize else {})
    return tables.with_metadata(pa.schema([tables.ID, pa.field("image", kind, nullable=False)]), metadata)


def write_images(
    directory: Path,
    ids: np.ndarray,
    images: np.ndarray | ImageFiles,
    counted: np.ndarray | None = None,
    advance: Callable[[int], None] | None = None,
) -> StoredImages:
    """Store uint8 images of shape (N, channels, height, width), or N image files, under ascending ids.

    The directory appears whole or not at all. Memory holds a record batch and what is being decoded.
    The same pass hashes every image and counts the pixel values of the rows where `counted` is true.
    `advance(number of images)` is called now and then.
    """
    shape = image_shape(images)
    encoded = not isinstance(images, np.ndarray) and max(shape[1:]) > MAX_RAW_SIDE
    resize = None if isinstance(images, np.ndarray) else images.resize
    schema, hashes, histogram = image_schema(shape, encoded, resize), np.empty(len(ids), "S64"), PixelHistogram(shape)
    end = 0
    with atomic_directory(directory) as part, ExitStack() as open_files:
        shards = ShardWriter(part, schema, open_files)
        rows = min(MAX_BATCH_ROWS, -(-BATCH_BYTES // int(np.prod(shape))))
        writer = EncodedChunkWriter(shards, schema) if encoded else ChunkWriter(shards, schema, shape, rows)
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
        shards.finish_shard()
        encoding: Literal["files", "pixels"] = "files" if encoded else "pixels"
        write_manifest(part, ImageManifest(shape=shape, encoding=encoding, resize=resize, shards=tuple(shards.shards)))
    return StoredImages(hashes, histogram.counts())


class EncodedChunkWriter:
    """Collects image files and writes them in record batches of bounded size."""

    def __init__(self, writer: ShardWriter, schema: pa.Schema) -> None:
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


class RawImageStore(ImageShards[MappedArrays]):
    """Raw pixels, copied from the memory maps when they are taken."""

    def __init__(self, manifest: ImageManifest, locate: LocateShard) -> None:
        schema = image_schema(manifest.shape)
        super().__init__(manifest, locate, lambda path: MappedArrays(path, "image", manifest.shape, schema))
        self.shape = manifest.shape

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The images of these ids, in their order, as one new array."""
        taken = np.empty((len(ids), *self.shape), np.uint8)
        for shard, places in self.split(ids):
            shard.copy_arrays(ids[places], taken, places)
        self.count_read_bytes(taken.nbytes)
        return taken


class EncodedImageStore(ImageShards[MappedBatches]):
    """Image files, decoded by several threads when they are taken. Keeps the last ones decoded, up to `cache` bytes."""

    def __init__(self, manifest: ImageManifest, locate: LocateShard, cache: int = CACHE_BYTES) -> None:
        schema = image_schema(manifest.shape, encoded=True)
        super().__init__(manifest, locate, lambda path: MappedBatches(path, schema))
        self.shape, self.resize = manifest.shape, manifest.resize
        self.cache_capacity = cache // int(np.prod(self.shape))
        self.cache: OrderedDict[int, np.ndarray] = OrderedDict()
        self.pool: ThreadPoolExecutor | None = None
        self.cached_batch = lru_cache(16)(MappedBatches.read_batch)  # views of the memory maps

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The images of these ids, in their order, as one new array."""
        distinct = list(dict.fromkeys(ids.tolist()))
        missing = np.array([i for i in distinct if i not in self.cache], np.int64)
        images = self.threads().map(self.decode, missing.tolist(), self.find_files(missing))
        decoded = dict(zip(missing.tolist(), images, strict=True))
        taken = np.empty((len(ids), *self.shape), np.uint8)
        for row, i in enumerate(ids.tolist()):
            taken[row] = decoded[i] if i in decoded else self.cache[i]
        self.update_cache(distinct, decoded)
        return taken

    def find_files(self, ids: np.ndarray) -> list[StoredFile]:
        files: dict[int, StoredFile] = {}
        for shard, places in self.split(ids):
            batches, rows = (each.tolist() for each in shard.locate(ids[places]))
            files |= zip(places.tolist(), zip(repeat(shard), batches, rows, strict=False), strict=True)
        return [files[place] for place in range(len(ids))]

    def read_file(self, stored: StoredFile) -> bytes:
        shard, batch, row = stored
        data: bytes = self.cached_batch(shard, batch)["image"][row].as_py()
        self.count_read_bytes(len(data))
        return data

    def decode(self, i: int, stored: StoredFile) -> np.ndarray:
        try:
            return decode_image(self.read_file(stored), self.shape, self.resize)
        except DataError as error:
            raise DataError(f"{stored[0].path}: id {i}: {error}; delete it and run again") from error

    def file(self, i: int) -> bytes:
        """The image file of this id, as it is stored."""
        return self.read_file(self.find_files(np.array([i]))[0])

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


ImageStore = RawImageStore | EncodedImageStore


def open_image_store(directory: Path, cache: int = CACHE_BYTES) -> ImageStore:
    """Opens no shard: they are opened when images in them are taken."""
    return open_shards(read_manifest(directory), lambda shard: directory / shard.name, cache)


def open_shards(manifest: ImageManifest, locate: LocateShard, cache: int) -> ImageStore:
    """The store of this manifest, whose shards are where `locate` says."""
    is_encoded = manifest.encoding == "files"
    return EncodedImageStore(manifest, locate, cache) if is_encoded else RawImageStore(manifest, locate)
