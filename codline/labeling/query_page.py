"""A page that shows the images of a query, by links to the files beside it; it needs no network."""

from dataclasses import dataclass
from html import escape
from urllib.parse import quote

STYLE = """body { font: 14px sans-serif; margin: 1rem; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: 14rem; object-fit: contain; background: #eee; }
figcaption { overflow-wrap: anywhere; } small { color: #666; }"""


@dataclass(frozen=True)
class Tile:
    name: str  # of the file, relative to the page
    image_id: int
    guess: str  # the predicted class


def render_page(cycle: str, tiles: list[Tile]) -> str:
    """The tiles by rank."""
    title = f"{cycle}: {len(tiles)} images"
    figures = "\n".join(render_tile(rank, tile) for rank, tile in enumerate(tiles, 1))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f"<!doctype html>\n<html lang=en>{head}\n<h1>{escape(title)}</h1>\n<main>\n{figures}\n</main>\n</html>\n"


def render_tile(rank: int, tile: Tile) -> str:
    link, guess = quote(tile.name), f", predicted: {escape(tile.guess)}" if tile.guess else ""
    image = f'<a href="{link}"><img src="{link}" alt="{escape(tile.name)}" loading=lazy></a>'
    caption = f"<b>{rank}</b> {escape(tile.name)}<br><small>id {tile.image_id}{guess}</small>"
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
