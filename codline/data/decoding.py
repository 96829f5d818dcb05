"""Picture files to pixels: upright, without transparency, in grey or colour, cut to one size; several at a time."""

import io
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from codline.core.errors import DataError

Shape = tuple[int, int, int]  # channels, height, width
THREADS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
COARSE = 2  # a photograph is decoded at no less than so many times the size wanted: a quarter of the time, and no difference to see
GREY = {"1", "L", "La", "LA", "I", "F"}
FREQUENT = ("JPEG", "PNG")  # tried first: to ask all others takes longer than to decode a small image
PNG = b"\x89PNG\r\n\x1a\n"  # how its files begin
CHUNK, HEADER = struct.Struct(">I4s"), struct.Struct(">IIBBBBB")  # length and name of a chunk; what the first one says
MODES = {(8, 0, 0, 0, 0): "L", (8, 2, 0, 0, 0): "RGB"}  # by depth, colour, compression, filter and interlacing
SILENT = {
    b"bKGD",
    b"cHRM",
    b"gAMA",
    b"pHYs",
    b"sBIT",
    b"sRGB",
    b"tIME",
}  # chunks that change nothing of what Pillow reads
BRIEF = 2**16  # pixels of an image where Pillow takes longer to look around in the file than to decode it
NOTES = {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}  # where these may say which side is up
NOT_READ = {
    "BUFR",
    "EPS",
    "GRIB",
    "HDF5",
    "MPEG",
    "WMF",
}  # Pillow knows them by name only, or would run another program

T = TypeVar("T")
R = TypeVar("R")


def decoded(data: bytes, shape: Shape) -> np.ndarray:
    """uint8 of this shape, to be read, not written: as large as covers it, then cut to it around the centre."""
    channels, height, width = shape
    with readable():
        image, mode = unadorned(data) or drafted(data, COARSE * max(height, width)), "L" if channels == 1 else "RGB"
        plain = image if image.mode == mode else image.convert(mode)
        fitting = (
            plain if plain.size == (width, height) else ImageOps.fit(plain, (width, height), Image.Resampling.BILINEAR)
        )
        pixels = np.frombuffer(fitting.tobytes(), np.uint8)  # what asarray does, and asks around less
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def drafted(data: bytes, side: int) -> Image.Image:
    with opened(data) as file:
        file.draft(None, (side, side))
        return opaque(upright(file))


def unadorned(data: bytes) -> Image.Image | None:
    """A small PNG file with pixels and nothing else, in less than half of the time that Pillow takes for any file; None for all others, sound or not."""
    if not data.startswith(PNG):
        return None
    with suppress(
        struct.error, StopIteration, ValueError
    ):  # it breaks off, or does not hold what it says: Pillow has words for that
        behind = chunks(data)
        first, content = next(behind)
        width, height, *coded = HEADER.unpack(content)
        mode, pixels = MODES.get(tuple(coded)), list[bytes]()
        if first != b"IHDR" or mode is None or not 0 < width * height <= BRIEF:
            return None
        for name, content in behind:
            if name == b"IEND":
                return Image.frombytes(mode, (width, height), b"".join(pixels), "zip", mode)
            if name == b"IDAT":
                pixels.append(content)
            elif name not in SILENT:
                return None
    return None


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and contents, as long as their sums are right."""
    end = len(PNG)
    while True:
        start = end + 8
        length, name = CHUNK.unpack_from(data, end)
        end = start + length + 4
        if zlib.crc32(data[start - 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            return
        yield name, data[start : end - 4]


def inspected(data: bytes) -> Shape:
    """Channels (1 or 3), height and width. All of it is decoded, coarsely, so that a file that breaks off is found."""
    with readable():
        if (small := unadorned(data)) is not None:
            return len(small.getbands()), small.height, small.width
        with opened(data) as file:
            width, height = file.size
            channels = 1 if file.mode in GREY or file.mode.startswith("I;16") else 3
            file.draft(None, (256, 256))
            coarse = file.size
            turned = (upright(file).size == coarse[::-1]) and coarse[0] != coarse[1]
        return channels, *((width, height) if turned else (height, width))


class readable:  # noqa: N801 (used as a statement)
    """Whatever Pillow's readers stumble over is one kind of mistake."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, DataError | MemoryError):
            raise DataError(f"not an image that can be read ({said(error)})") from error


def said(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "of no known format"
    return " ".join(str(error).split()) or type(error).__name__


def opened(data: bytes) -> Image.Image:
    if not data:
        raise DataError("found 0 bytes, expected an image")
    return Image.open(io.BytesIO(data), formats=("PNG",) if data.startswith(PNG) else formats())


@cache
def formats() -> list[str]:
    Image.init()
    return [*FREQUENT, *sorted(set(Image.OPEN) - NOT_READ - set(FREQUENT))]


@cache
def suffixes() -> frozenset[str]:
    """How the names of picture files end."""
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in formats())


def upright(file: Image.Image) -> Image.Image:
    file.load()
    if file.format in FREQUENT and not NOTES & file.info.keys():
        return file
    with suppress(Exception):  # a camera's broken note about itself is no reason to refuse its picture
        return ImageOps.exif_transpose(file)
    return file


def opaque(image: Image.Image) -> Image.Image:
    """Eight bits a channel, transparency laid on white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return eight_bits(image)
    if not image.has_transparency_data:
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))


def eight_bits(image: Image.Image) -> Image.Image:
    """Whole numbers are taken for sixteen bits, floats for shares of one, or for 0 to 255 where they are larger."""
    values = np.asarray(image).astype(np.float64)
    scale = 1 / 256 if image.mode != "F" else 255 if values.max(initial=0) <= 1 else 1
    return Image.fromarray(np.clip(np.nan_to_num(values) * scale, 0, 255).astype(np.uint8))


def ahead(
    pool: ThreadPoolExecutor,
    function: Callable[[T], R],
    values: Iterable[T],
    window: int = 4 * THREADS,
    alone: Callable[[T], bool] = lambda _: False,
) -> Iterator[R]:
    """As map, in order, but with at most `window` values drawn and not yet handed out, so that memory stays bounded.

    What is better done `alone` waits for no thread.
    """
    waiting: deque[Future[R]] = deque()
    for value in values:
        if alone(value):
            while waiting:
                yield waiting.popleft().result()
            yield function(value)
            continue
        waiting.append(pool.submit(function, value))
        if len(waiting) >= window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
