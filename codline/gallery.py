"""Images to look at: small ones enlarged without blur, large ones reduced, a query as one sheet."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from codline.charts import INK, MUTED, PAPER

SIDE = 96  # pixels, about, of a tile
COLUMNS = 9
GAP, LINE = 12, 15


def picture(image_CHW: np.ndarray) -> Image.Image:
    """Colour from three channels, grey from the first of any other number; never larger than a tile."""
    grey = len(image_CHW) != 3
    pixels = Image.fromarray(np.ascontiguousarray(image_CHW[0] if grey else image_CHW.transpose(1, 2, 0)))
    if max(pixels.size) > SIDE:
        pixels.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return pixels


def tile(image_CHW: np.ndarray) -> Image.Image:
    """As large as a tile, by a whole factor: every pixel stays a square."""
    small = picture(image_CHW)
    factor = max(1, SIDE // max(small.size))
    return small.resize((small.width * factor, small.height * factor), Image.Resampling.NEAREST)


def sheet(images_NCHW: np.ndarray, captions: Sequence[tuple[str, str]]) -> bytes:
    """A PNG of all images in reading order, with two lines under each."""
    columns = min(COLUMNS, len(images_NCHW))
    rows = -(-len(images_NCHW) // columns)
    wide, high = SIDE + GAP, SIDE + 2 * LINE + GAP + 2
    page = Image.new("RGB", (columns * wide + GAP, rows * high + GAP), PAPER)
    draw = ImageDraw.Draw(page)
    strong, light = font("DejaVuSans-Bold.ttf", 12), font("DejaVuSans.ttf", 10)
    for i, (image, (first, second)) in enumerate(zip(images_NCHW, captions, strict=True)):
        left, top = GAP + i % columns * wide, GAP + i // columns * high
        shown = tile(image)
        page.paste(shown, (left + (SIDE - shown.width) // 2, top + (SIDE - shown.height) // 2))
        draw.text((left + SIDE / 2, top + SIDE + LINE), fitted(first, strong), INK, strong, anchor="ms")
        draw.text((left + SIDE / 2, top + SIDE + 2 * LINE - 1), fitted(second, light), MUTED, light, anchor="ms")
    return png(page)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size, layout_engine=ImageFont.Layout.BASIC)


def fitted(text: str, face: ImageFont.FreeTypeFont) -> str:
    while face.getlength(text) > SIDE + GAP - 4:
        text = text.removesuffix("…")[:-1] + "…"
    return text
