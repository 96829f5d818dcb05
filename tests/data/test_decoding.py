"""Decoding of image files: upright, opaque pixels of the requested shape, and one sentence for broken files."""

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from codline.core.errors import DataError
from codline.data.decoding import bounded_map, decode_image, image_suffixes, inspect_image
from codline.data.masks import decode_mask

RED_LEFT = np.zeros((20, 40, 3), np.uint8)
RED_LEFT[:, :20, 0] = 255


def encode(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def red_left_with_orientation(orientation: int, kind: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "jpeg" else {}
    return encode(Image.fromarray(RED_LEFT), kind, exif=exif, **options)


def test_decode_image_keeps_the_pixels_of_an_image_of_the_right_size() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)
    assert np.array_equal(decode_image(encode(Image.fromarray(pixels)), (3, 20, 40)), pixels.transpose(2, 0, 1))


def test_decode_image_scales_to_cover_the_shape_and_crops_at_the_center() -> None:
    stripes = np.repeat([[0, 255, 255, 0]], 10, axis=0).repeat(10, axis=1).astype(np.uint8)
    # 10x40 covers 20x40 when it is scaled to 20x80, whose middle is white.
    decoded = decode_image(encode(Image.fromarray(stripes)), (1, 20, 40))
    assert decoded.shape == (1, 20, 40)
    assert (decoded[:, :, 1:-1] == 255).all()


@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff"])
def test_decode_image_applies_the_exif_orientation(kind: str) -> None:
    rotated = red_left_with_orientation(6, kind)  # 6: the left side of the stored pixels is the top of the image
    assert inspect_image(rotated) == (3, 40, 20)
    upright = decode_image(rotated, (3, 40, 20))
    assert (upright[0, :20] >= (250 if kind == "jpeg" else 255)).all()
    assert (upright[0, 20:] <= (5 if kind == "jpeg" else 0)).all()
    upside_down = red_left_with_orientation(3, kind)
    assert inspect_image(upside_down) == inspect_image(red_left_with_orientation(1, kind)) == (3, 20, 40)
    assert (decode_image(upside_down, (3, 20, 40))[0, :, 20:] >= 250).all()


def test_decode_image_ignores_broken_exif_metadata() -> None:
    data = encode(Image.fromarray(RED_LEFT), "jpeg", exif=b"Exif\x00\x00XX*\x00nonsense")
    assert decode_image(data, (3, 20, 40)).shape == (3, 20, 40)


SIXTEEN_BITS = np.full((12, 12), 0x8040, np.uint16)
MODES = {
    "bilevel": (Image.new("1", (12, 12), 1), "png", 1, (255, 255, 255)),
    "gray": (Image.new("L", (12, 12), 77), "png", 1, (77, 77, 77)),
    "gray and alpha": (Image.new("LA", (12, 12), (0, 0)), "png", 1, (255, 255, 255)),
    "palette": (Image.new("RGB", (12, 12), (10, 200, 30)).quantize(4), "png", 3, (10, 200, 30)),
    "alpha": (Image.new("RGBA", (12, 12), (255, 0, 0, 0)), "png", 3, (255, 255, 255)),
    "half alpha": (Image.new("RGBA", (12, 12), (255, 0, 0, 51)), "png", 3, (255, 204, 204)),
    "sixteen bits": (Image.fromarray(SIXTEEN_BITS), "png", 1, (128, 128, 128)),
    "sixteen bits in TIFF": (Image.fromarray(SIXTEEN_BITS), "tiff", 1, (128, 128, 128)),
    "floats up to one": (Image.fromarray(np.full((12, 12), 0.5, np.float32)), "tiff", 1, (127, 127, 127)),
    "CMYK": (Image.new("CMYK", (12, 12), (0, 255, 255, 0)), "tiff", 3, (255, 0, 0)),
}


@pytest.mark.parametrize(("image", "kind", "channels", "color"), MODES.values(), ids=list(MODES))
def test_decode_image_converts_every_mode_to_rgb_or_gray(
    image: Image.Image, kind: str, channels: int, color: tuple[int, int, int]
) -> None:
    data = encode(image, kind)
    assert inspect_image(data) == (channels, 12, 12)
    assert decode_image(data, (3, 12, 12))[:, 5, 5].tolist() == list(color)
    gray = int(Image.new("RGB", (1, 1), color).convert("L").tobytes()[0])
    assert decode_image(data, (1, 12, 12))[:, 5, 5].tolist() == [gray]


def test_decode_image_blends_a_transparent_palette_color_with_white() -> None:
    image = Image.new("P", (12, 12), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert decode_image(encode(image, transparency=0), (3, 12, 12))[:, 5, 5].tolist() == [255, 255, 255]


def test_decode_image_of_a_large_jpeg_is_close_to_a_full_decode() -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).resize((3000, 2000), Image.Resampling.BICUBIC)
    resized = smooth.crop((500, 0, 2500, 2000)).resize((64, 64), Image.Resampling.BILINEAR)
    exact = np.asarray(resized, np.int16).transpose(2, 0, 1)
    decoded = decode_image(encode(smooth, "jpeg", quality=95), (3, 64, 64))
    assert inspect_image(encode(smooth, "jpeg")) == (3, 2000, 3000)
    assert np.abs(decoded - exact).mean() < 2


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "bmp", "tiff", "webp"])
def test_decode_image_refuses_a_truncated_file(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = encode(Image.fromarray(pixels), kind)
    assert inspect_image(data) == (3, 64, 64)
    for read in (inspect_image, lambda data: decode_image(data, (3, 64, 64))):
        with pytest.raises(DataError, match=r"^not an image that can be read \(.+\)$"):
            read(data[: len(data) * 2 // 3])


@given(st.data())
def test_decode_image_returns_pixels_or_raises_data_error_for_a_damaged_png(data: st.DataObject) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    damaged = bytearray(encode(Image.fromarray(pixels), compress_level=data.draw(st.sampled_from([0, 1, 9]))))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    for place in data.draw(st.lists(st.integers(0, max(0, len(damaged) - 1)), max_size=3)) if damaged else []:
        damaged[place] = data.draw(st.integers(0, 255))
    for read in (inspect_image, lambda data: decode_image(data, (3, 9, 7)).shape):
        with suppress(DataError):
            assert len(read(bytes(damaged))) == 3


@pytest.mark.parametrize(
    ("data", "sentence"),
    [(b"", "found 0 bytes, expected an image"), (b"hello", "not an image that can be read (of no known format)")],
)
def test_decode_image_refuses_what_is_not_an_image(data: bytes, sentence: str) -> None:
    with pytest.raises(DataError) as refused:
        decode_image(data, (3, 8, 8))
    assert str(refused.value) == sentence


def test_decode_image_refuses_formats_that_would_start_another_program() -> None:
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".gif", ".bmp"} <= image_suffixes()
    assert not image_suffixes() & {".eps", ".ps", ".mpg", ".pdf", ".h5", ".txt"}
    with pytest.raises(DataError, match="of no known format"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n", (3, 8, 8))


def png_header(width: int, height: int) -> bytes:
    """A PNG of this size as far as its header tells, with the pixels of a small one."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, "PNG")
    data = buffer.getvalue()
    header = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


@pytest.mark.parametrize(
    ("size", "found"), [((13_000, 13_000), "found 13000x13000 pixels"), ((60_000, 60_000), "found too many pixels")]
)
@pytest.mark.parametrize("read", [decode_mask, inspect_image, lambda data: decode_image(data, (3, 8, 8))])
def test_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    size: tuple[int, int], found: str, read: Callable[[bytes], object]
) -> None:
    with pytest.raises(DataError, match=f"{found}, expected at most 80 million; make it smaller"):
        read(png_header(*size))


def test_bounded_map_keeps_the_order_and_takes_no_more_than_its_window() -> None:
    taken, returned, most_ahead, lock = 0, 0, 0, threading.Lock()

    def values() -> Iterator[int]:
        nonlocal taken, most_ahead
        for value in range(100):
            with lock:
                taken += 1
                most_ahead = max(most_ahead, taken - returned)
            yield value

    with ThreadPoolExecutor(3) as pool:
        for value, doubled in enumerate(bounded_map(pool, lambda value: value * 2, values(), window=5)):
            assert doubled == 2 * value
            returned += 1
    assert returned == 100
    assert most_ahead == 5
