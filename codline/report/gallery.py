"""Images to look at: small ones enlarged without blur, large ones reduced, a query as one sheet."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from codline.data.dense_outputs import NOTHING
from codline.report.charts import INK, MUTED, PAPER

SIDE = 96  # pixels, about, of a tile
COLUMNS = 9
GAP, LINE = 12, 15
COLOURS = matplotlib.colormaps["tab20"](np.arange(20))[:, :3] * 255  # of the classes in a mask


def triptych(image_CHW: np.ndarray, *masks_HW: np.ndarray | None) -> np.ndarray:
    """An image and, beside it, the same under each mask's colours; a mask that is missing leaves it grey."""
    colour = image_CHW if len(image_CHW) == 3 else np.repeat(image_CHW[:1], 3, axis=0)
    grey = np.repeat(colour.mean(axis=0, keepdims=True), 3, axis=0)
    gap = np.full((3, colour.shape[1], max(2, colour.shape[2] // 48)), 255, np.uint8)
    panels = [colour]
    for mask_HW in masks_HW:
        tint = (
            grey
            if mask_HW is None
            else np.where(
                mask_HW == NOTHING, 0.5 * grey, 0.4 * grey + 0.6 * COLOURS[mask_HW % len(COLOURS)].transpose(2, 0, 1)
            )
        )
        panels += [gap, tint.astype(np.uint8)]
    return np.concatenate(panels, axis=2)


def picture(image_CHW: np.ndarray, side: int = SIDE) -> Image.Image:
    """Colour from three channels, grey from the first of any other number; never larger than a tile."""
    grey = len(image_CHW) != 3
    pixels = Image.fromarray(np.ascontiguousarray(image_CHW[0] if grey else image_CHW.transpose(1, 2, 0)))
    if max(pixels.size) > side:
        pixels.thumbnail((side, side), Image.Resampling.LANCZOS)
    return pixels


def tile(image_CHW: np.ndarray, side: int) -> Image.Image:
    """As large as a tile, by a whole factor: every pixel stays a square."""
    small = picture(image_CHW, side)
    factor = max(1, side // max(small.size))
    return small.resize((small.width * factor, small.height * factor), Image.Resampling.NEAREST)


def sheet(images_NCHW: np.ndarray, captions: Sequence[tuple[str, str]]) -> bytes:
    """A PNG of all images in reading order, with two lines under each. Wide ones have a wide tile."""
    height, width = images_NCHW.shape[2:]
    side, tall = (SIDE, SIDE) if width < 2 * height else (3 * SIDE, 3 * SIDE * height // width)
    columns = min(COLUMNS * SIDE // side, len(images_NCHW))
    rows = -(-len(images_NCHW) // columns)
    wide, high = side + GAP, tall + 2 * LINE + GAP + 2
    page = Image.new("RGB", (columns * wide + GAP, rows * high + GAP), PAPER)
    draw = ImageDraw.Draw(page)
    strong, light = font("DejaVuSans-Bold.ttf", 12), font("DejaVuSans.ttf", 10)
    for i, (image, (first, second)) in enumerate(zip(images_NCHW, captions, strict=True)):
        left, top = GAP + i % columns * wide, GAP + i // columns * high
        shown = tile(image, side)
        page.paste(shown, (left + (side - shown.width) // 2, top + (tall - shown.height) // 2))
        draw.text((left + side / 2, top + tall + LINE), fitted(first, strong), INK, strong, anchor="ms")
        draw.text((left + side / 2, top + tall + 2 * LINE - 1), fitted(second, light), MUTED, light, anchor="ms")
    return png(page)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        Path(matplotlib.get_data_path(), "fonts", "ttf", name), size, layout_engine=ImageFont.Layout.BASIC
    )


def fitted(text: str, face: ImageFont.FreeTypeFont) -> str:
    while face.getlength(text) > SIDE + GAP - 4:
        text = text.removesuffix("…")[:-1] + "…"
    return text
