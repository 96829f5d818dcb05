"""Decodes image files to uint8 arrays: upright, opaque, in gray or RGB, and resized to one shape."""

import io
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from codline.core.errors import DataError

Shape = tuple[int, int, int]  # channels, height, width
THREADS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
MIN_DRAFT_SCALE = 2  # JPEGs are decoded at twice the target size or more: a quarter of the time, no visible difference
GRAY_MODES = {"1", "L", "La", "LA", "I", "F"}
FREQUENT_FORMATS = ("JPEG", "PNG")  # tried first: trying all formats takes longer than decoding a small image
# Of Pillow's other formats, some start a program (EPS), or open what they contain in any format (IPTC) or size (ICO).
FORMATS = (
    *FREQUENT_FORMATS,
    *("AVIF", "BMP", "DIB", "GIF", "JPEG2000", "PCX", "PPM", "QOI", "SGI", "TGA", "TIFF", "WEBP"),
)
MAX_PIXELS = 80 * 10**6  # of one image: decoded, a quarter of a gigabyte
ORIENTATION_KEYS = {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}  # of `info`, in JPEG and PNG files

T = TypeVar("T")
R = TypeVar("R")


def decode_image(data: bytes, shape: Shape, resize: tuple[int, int] | None = None) -> np.ndarray:
    """Read-only uint8 array of `shape`. An image of another size is scaled to cover it and cropped at the center.

    With `resize`, a height and width of at least those of `shape`, it is scaled to exactly these, whatever its aspect
    ratio, before the crop.
    """
    channels, height, width = shape
    with translate_pillow_errors(), open_image(data) as file:
        file.draft(None, (MIN_DRAFT_SCALE * max(resize or (height, width)),) * 2)
        image, mode = remove_transparency(rotate_upright(file)), "L" if channels == 1 else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        if resize is not None:
            image = image.resize(resize[::-1], Image.Resampling.BILINEAR)
            top, left = ((side - kept) // 2 for side, kept in zip(resize, (height, width), strict=True))
            image = image.crop((left, top, left + width, top + height))
        elif image.size != (width, height):
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        return np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)


def inspect_image(data: bytes) -> Shape:
    """Channels (1 or 3), height and width. Decodes at low resolution, to detect truncated files."""
    with translate_pillow_errors(), open_image(data) as file:
        width, height = file.size
        channels = 1 if file.mode in GRAY_MODES or file.mode.startswith("I;16") else 3
        file.draft(None, (256, 256))
        draft_size = file.size
        is_rotated = rotate_upright(file).size == draft_size[::-1] and draft_size[0] != draft_size[1]
        return (channels, width, height) if is_rotated else (channels, height, width)


@contextmanager
def translate_pillow_errors() -> Iterator[None]:
    """Raise DataError for all exceptions of Pillow's decoders, which are of many types."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise DataError("not an image that can be read (of no known format)") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"not an image that can be read ({reason})") from error


def open_image(data: bytes, formats: tuple[str, ...] | None = None) -> Image.Image:
    """Opens, but does not decode. All images that codline decodes go through here: a few bytes may decode to gigabytes.

    `formats`: those that are accepted; default: FORMATS.
    """
    if not data:
        raise DataError("found 0 bytes, expected an image")
    expected = f"expected at most {MAX_PIXELS // 10**6} million; make it smaller"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
            image = Image.open(io.BytesIO(data), formats=formats or image_formats())
    except Image.DecompressionBombError as error:
        raise DataError(f"found too many pixels, {expected}") from error
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"found {image.width}x{image.height} pixels, {expected}")
    return image


@cache
def image_formats() -> list[str]:
    """FORMATS without those that Pillow was built without."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


@cache
def image_suffixes() -> frozenset[str]:
    """File name suffixes of the formats that can be decoded."""
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in image_formats())


def rotate_upright(file: Image.Image) -> Image.Image:
    file.load()
    if file.format in FREQUENT_FORMATS and not ORIENTATION_KEYS & file.info.keys():
        return file  # exif_transpose would do nothing, and take a quarter of a small image's time
    with suppress(Exception):  # the pixels are usable even if the metadata is broken
        return ImageOps.exif_transpose(file)
    return file


def remove_transparency(image: Image.Image) -> Image.Image:
    """Eight bits per channel, transparent parts blended with white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return to_eight_bits(image)
    if not image.has_transparency_data:
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))


def to_eight_bits(image: Image.Image) -> Image.Image:
    """Integers are scaled from 16 bits; floats from [0, 1], or from [0, 255] if any exceeds 1."""
    values = np.asarray(image).astype(np.float64)
    scale = 1 / 256 if image.mode != "F" else 255 if values.max(initial=0) <= 1 else 1
    return Image.fromarray(np.clip(np.nan_to_num(values) * scale, 0, 255).astype(np.uint8))


def bounded_map(
    pool: ThreadPoolExecutor,
    function: Callable[[T], R],
    values: Iterable[T],
    window: int = 4 * THREADS,
    run_inline: Callable[[T], bool] = lambda _: False,
) -> Iterator[R]:
    """Like `pool.map`, but takes at most `window` values ahead of the consumer, so that memory stays bounded.

    Values for which `run_inline` is true are processed by the calling thread.
    """
    pending: deque[Future[R]] = deque()
    for value in values:
        if run_inline(value):
            while pending:
                yield pending.popleft().result()
            yield function(value)
            continue
        pending.append(pool.submit(function, value))
        if len(pending) >= window:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
