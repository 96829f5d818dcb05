"""Images before they are stored: an array, or image files, which several threads decode."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from codline.core.errors import DataError
from codline.data.decoding import THREADS, Shape, bounded_map, decode_image

CHUNK_IMAGES, CHUNK_BYTES = 32, 2**16  # limits of a chunk that one thread decodes: images, and bytes of their files
TINY_FILE_BYTES = 2**12  # smaller files are decoded by the calling thread, since threads would mostly wait for the GIL


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
