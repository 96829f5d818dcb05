"""Images as pictures: thumbnails, overlaid masks, and captioned grids."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from codline.data.dense_outputs import IGNORE_INDEX
from codline.report.chart_layout import INK, MUTED, PAPER

TILE_SIDE = 96  # pixels
COLUMNS = 9
GAP, LINE_HEIGHT = 12, 15
CLASS_COLORS = matplotlib.colormaps["tab20"](np.arange(20))[:, :3] * 255


def overlay_masks(image_CHW: np.ndarray, *masks_HW: np.ndarray | None) -> np.ndarray:
    """The image, and to its right a gray copy for each mask, tinted by class; without a mask it stays gray."""
    color = image_CHW if len(image_CHW) == 3 else np.repeat(image_CHW[:1], 3, axis=0)
    gray = np.repeat(color.mean(axis=0, keepdims=True), 3, axis=0)
    gap = np.full((3, color.shape[1], max(2, color.shape[2] // 48)), 255, np.uint8)
    panels = [color]
    for mask_HW in masks_HW:
        tinted = gray
        if mask_HW is not None:
            tint = CLASS_COLORS[mask_HW % len(CLASS_COLORS)].transpose(2, 0, 1)
            tinted = np.where(mask_HW == IGNORE_INDEX, 0.5 * gray, 0.4 * gray + 0.6 * tint)
        panels += [gap, tinted.astype(np.uint8)]
    return np.concatenate(panels, axis=2)


def thumbnail(image_CHW: np.ndarray, side: int = TILE_SIDE) -> Image.Image:
    """Reduced to `side` pixels, if it is larger. Three channels are colors; of any other number the first is gray."""
    is_gray = len(image_CHW) != 3
    image = Image.fromarray(np.ascontiguousarray(image_CHW[0] if is_gray else image_CHW.transpose(1, 2, 0)))
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image


def enlarge(image_CHW: np.ndarray, side: int) -> Image.Image:
    """Up to `side` pixels, by an integer factor: pixels stay sharp squares."""
    small = thumbnail(image_CHW, side)
    factor = max(1, side // max(small.size))
    return small.resize((small.width * factor, small.height * factor), Image.Resampling.NEAREST)


def image_grid(images_NCHW: np.ndarray, captions: Sequence[tuple[str, str]]) -> bytes:
    """A PNG of all images row by row, each with two lines of caption. Wide images get wide tiles."""
    height, width = images_NCHW.shape[2:]
    is_wide = width >= 2 * height
    side, tile_height = (3 * TILE_SIDE, 3 * TILE_SIDE * height // width) if is_wide else (TILE_SIDE, TILE_SIDE)
    columns = min(COLUMNS * TILE_SIDE // side, len(images_NCHW))
    rows = -(-len(images_NCHW) // columns)
    column_width, row_height = side + GAP, tile_height + 2 * LINE_HEIGHT + GAP + 2
    grid = Image.new("RGB", (columns * column_width + GAP, rows * row_height + GAP), PAPER)
    draw = ImageDraw.Draw(grid)
    bold, regular = load_font("DejaVuSans-Bold.ttf", 12), load_font("DejaVuSans.ttf", 10)
    for i, (image, (first, second)) in enumerate(zip(images_NCHW, captions, strict=True)):
        left, top = GAP + i % columns * column_width, GAP + i // columns * row_height
        tile = enlarge(image, side)
        grid.paste(tile, (left + (side - tile.width) // 2, top + (tile_height - tile.height) // 2))
        center, below = left + side / 2, top + tile_height + LINE_HEIGHT
        draw.text((center, below), truncate(first, bold), INK, bold, anchor="ms")
        draw.text((center, below + LINE_HEIGHT - 1), truncate(second, regular), MUTED, regular, anchor="ms")
    return to_png(grid)


def to_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", name)
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def truncate(text: str, font: ImageFont.FreeTypeFont) -> str:
    """Shorten to the width of a tile."""
    while font.getlength(text) > TILE_SIDE + GAP - 4:
        text = text.removesuffix("…")[:-1] + "…"
    return text
