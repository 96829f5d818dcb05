"""Any picture file becomes upright pixels of the shape asked for, whatever its mode; what cannot be read is said in one sentence."""

import io
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image, PngImagePlugin

from codline.core.errors import DataError
from codline.data.decoding import PNG, ahead, decoded, inspected, suffixes, unadorned

RED_LEFT = np.zeros((20, 40, 3), np.uint8)
RED_LEFT[:, :20, 0] = 255


def file(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    kept = io.BytesIO()
    image.save(kept, kind, **options)
    return kept.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file(Image.fromarray(RED_LEFT), exif=exif)


def test_an_image_of_the_right_size_keeps_its_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)
    assert np.array_equal(decoded(file(Image.fromarray(pixels)), (3, 20, 40)), pixels.transpose(2, 0, 1))


def test_an_image_is_scaled_until_it_covers_the_shape_and_cut_around_its_centre() -> None:
    stripes = np.repeat([[0, 255, 255, 0]], 10, axis=0).repeat(10, axis=1).astype(np.uint8)
    found = decoded(
        file(Image.fromarray(stripes)), (1, 20, 40)
    )  # 10x40 covers 20x40 as 20x80, of which the middle is white
    assert found.shape == (1, 20, 40)
    assert (found[:, :, 1:-1] == 255).all()


def test_a_photograph_taken_sideways_stands_upright() -> None:
    assert inspected(turned(6)) == (3, 40, 20)
    upright = decoded(turned(6), (3, 40, 20))  # 6: turned to the left when taken, so the left side is up
    assert (upright[0, :20] == 255).all()
    assert (upright[0, 20:] == 0).all()
    assert inspected(turned(3)) == inspected(turned(1)) == (3, 20, 40)
    assert (decoded(turned(3), (3, 20, 40))[0, :, 20:] == 255).all()


def test_a_broken_note_of_the_camera_does_not_cost_its_picture() -> None:
    data = file(Image.fromarray(RED_LEFT), "jpeg", exif=b"Exif\x00\x00XX*\x00nonsense")
    assert decoded(data, (3, 20, 40)).shape == (3, 20, 40)


DEEP = np.full((12, 12), 0x8040, np.uint16)
MODES = {
    "bilevel": (Image.new("1", (12, 12), 1), "png", 1, (255, 255, 255)),
    "grey": (Image.new("L", (12, 12), 77), "png", 1, (77, 77, 77)),
    "grey and alpha": (Image.new("LA", (12, 12), (0, 0)), "png", 1, (255, 255, 255)),
    "palette": (Image.new("RGB", (12, 12), (10, 200, 30)).quantize(4), "png", 3, (10, 200, 30)),
    "alpha": (Image.new("RGBA", (12, 12), (255, 0, 0, 0)), "png", 3, (255, 255, 255)),
    "half alpha": (Image.new("RGBA", (12, 12), (255, 0, 0, 51)), "png", 3, (255, 204, 204)),
    "sixteen bits": (Image.fromarray(DEEP), "png", 1, (128, 128, 128)),
    "sixteen bits in TIFF": (Image.fromarray(DEEP), "tiff", 1, (128, 128, 128)),
    "floats up to one": (Image.fromarray(np.full((12, 12), 0.5, np.float32)), "tiff", 1, (127, 127, 127)),
    "print colours": (Image.new("CMYK", (12, 12), (0, 255, 255, 0)), "tiff", 3, (255, 0, 0)),
}


@pytest.mark.parametrize(("image", "kind", "channels", "colour"), MODES.values(), ids=list(MODES))
def test_every_mode_becomes_colour_or_grey(
    image: Image.Image, kind: str, channels: int, colour: tuple[int, int, int]
) -> None:
    data = file(image, kind)
    assert inspected(data) == (channels, 12, 12)
    assert decoded(data, (3, 12, 12))[:, 5, 5].tolist() == list(colour)
    grey = int(Image.new("RGB", (1, 1), colour).convert("L").tobytes()[0])
    assert decoded(data, (1, 12, 12))[:, 5, 5].tolist() == [grey]


def test_a_transparent_colour_of_a_palette_is_laid_on_white() -> None:
    image = Image.new("P", (12, 12), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert decoded(file(image, transparency=0), (3, 12, 12))[:, 5, 5].tolist() == [255, 255, 255]


def test_a_large_photograph_decoded_coarsely_looks_the_same() -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).resize((3000, 2000), Image.Resampling.BICUBIC)
    exact = np.asarray(
        smooth.crop((500, 0, 2500, 2000)).resize((64, 64), Image.Resampling.BILINEAR), np.int16
    ).transpose(2, 0, 1)
    found = decoded(file(smooth, "jpeg", quality=95), (3, 64, 64))
    assert inspected(file(smooth, "jpeg")) == (3, 2000, 3000)
    assert np.abs(found - exact).mean() < 2


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "bmp", "tiff", "webp"])
def test_a_file_that_breaks_off_is_refused(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = file(Image.fromarray(pixels), kind)
    assert inspected(data) == (3, 64, 64)
    for read in (inspected, lambda some: decoded(some, (3, 64, 64))):
        with pytest.raises(DataError, match=r"^not an image that can be read \(.+\)$"):
            read(data[: len(data) * 2 // 3])


def outcome(data: bytes) -> tuple[object, ...]:
    """Pixels and facts, or the sentence."""
    try:
        return decoded(data, (3, 9, 7)).tobytes(), decoded(data, (1, 5, 5)).tobytes(), inspected(data)
    except DataError as error:
        return (str(error),)


def outcome_through_pillow(data: bytes) -> tuple[object, ...]:
    with mock.patch("codline.data.decoding.unadorned", return_value=None):
        return outcome(data)


def spelled(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4) + name + content + zlib.crc32(name + content).to_bytes(4)


NOTE = PngImagePlugin.PngInfo()
NOTE.add_text("Comment", "hello")
SIDEWAYS = Image.Exif()
SIDEWAYS[0x0112] = 6
ADORNED = {
    "nothing": {},
    "a comment": {"pnginfo": NOTE},
    "its size in print": {"dpi": (72, 72)},
    "a side that is up": {"exif": SIDEWAYS},
    "a transparent colour": {},
}
TRANSPARENT = {
    "RGB": {"transparency": (0, 0, 0)},
    "L": {"transparency": 0},
    "P": {"transparency": 0},
    "1": {"transparency": 0},
}


@pytest.mark.parametrize("extra", ADORNED)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16"])
def test_a_small_png_file_is_read_as_pillow_reads_it(mode: str, extra: str) -> None:
    colour = np.random.default_rng(0).integers(0, 2, (9, 7, 3), np.uint8) * 255
    image = Image.fromarray(colour).convert("L" if mode == "I;16" else mode).convert(mode)
    data = file(image, **(ADORNED | {"a transparent colour": TRANSPARENT.get(mode, {})})[extra])
    assert outcome(data) == outcome_through_pillow(data)
    assert len(outcome(data)) == 3
    assert (unadorned(data) is not None) == (mode in ("L", "RGB") and extra in ("nothing", "its size in print"))


@given(st.data())
def test_a_broken_png_file_has_the_fate_that_pillow_has_for_it(data: st.DataObject) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    whole = file(Image.fromarray(pixels), compress_level=data.draw(st.sampled_from([0, 1, 9])))
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole)))]
    broken = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, max(0, len(whole) - 1)), max_size=3)) if whole else []:
        broken[place] = data.draw(st.integers(0, 255))
    assert outcome(bytes(broken)) == outcome_through_pillow(bytes(broken))


@given(st.data())
def test_pixels_that_are_broken_under_a_right_sum_have_that_fate_too(data: st.DataObject) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (9, 1 + 7 * 3), np.uint8)
    rows[:, 0] = data.draw(
        st.lists(st.integers(0, 5), min_size=9, max_size=9)
    )  # how each row is filtered; there is no 5
    packed = bytearray(zlib.compress(rows.tobytes()))
    for place in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=2)):
        packed[place] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))] if data.draw(st.booleans()) else packed
    cut = data.draw(st.integers(0, len(packed)))
    header = spelled(b"IHDR", (7).to_bytes(4) + (9).to_bytes(4) + bytes([8, 2, 0, 0, 0]))
    made = (
        PNG
        + header
        + spelled(b"IDAT", bytes(packed[:cut]))
        + spelled(b"IDAT", bytes(packed[cut:]))
        + spelled(b"IEND", b"")
    )
    assert outcome(made) == outcome_through_pillow(made)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [(b"", "found 0 bytes, expected an image"), (b"hello", "not an image that can be read (of no known format)")],
)
def test_what_is_no_picture_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(DataError) as refused:
        decoded(data, (3, 8, 8))
    assert str(refused.value) == sentence


def test_files_that_would_run_another_program_are_no_pictures() -> None:
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".gif", ".bmp"} <= suffixes()
    assert not suffixes() & {".eps", ".ps", ".mpg", ".pdf", ".h5", ".txt"}
    with pytest.raises(DataError, match="of no known format"):
        decoded(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n", (3, 8, 8))


def test_work_ahead_comes_in_order_and_draws_no_more_than_its_window() -> None:
    drawn, handed_out, worst, lock = 0, 0, 0, threading.Lock()

    def values() -> Iterator[int]:
        nonlocal drawn, worst
        for value in range(100):
            with lock:
                drawn += 1
                worst = max(worst, drawn - handed_out)
            yield value

    with ThreadPoolExecutor(3) as pool:
        for wanted, found in enumerate(ahead(pool, lambda value: value * 2, values(), window=5)):
            assert found == 2 * wanted
            handed_out += 1
    assert handed_out == 100
    assert worst == 5
