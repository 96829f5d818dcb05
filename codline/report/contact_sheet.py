"""The query of a cycle as one picture: python -m codline.sheets c3 where.png"""

import sys
from pathlib import Path

import numpy as np

from codline.core.files import whole
from codline.data import dataset_info, image_store, tables
from codline.report import gallery, query_images
from codline.runtime.pipeline import Wiring

SHOWN = 36


def query(wiring: Wiring, cycle: str) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Images, most wanted first, each with two lines: its label (if it has one yet), and its rank and score."""
    facts = dataset_info.opened(wiring.path("annotate", "dataset", cycle))
    asked = tables.read(wiring.path("annotate", "query", cycle), tables.QUERY).sort_by("rank").slice(0, SHOWN)
    annotations = wiring.path("annotate", "annotations", cycle)
    labels = query_images.answered(annotations)
    captions = [
        (query_images.named(labels[i], facts.classes) if i in labels else "?", f"#{rank} · {score:.3g}")
        for i, rank, score in zip(
            asked["id"].to_pylist(), asked["rank"].to_pylist(), asked["score"].to_pylist(), strict=True
        )
    ]
    take = image_store.opened(wiring.path("score", "images", cycle)).take
    return query_images.shown(
        asked["id"].to_numpy(), take, facts, annotations, wiring.path("score", "outputs", cycle)
    ), captions


def sheet(wiring: Wiring, cycle: str) -> bytes:
    return gallery.sheet(*query(wiring, cycle))


if __name__ == "__main__":
    with whole(Path(sys.argv[2])) as part:
        part.write_bytes(sheet(Wiring(), sys.argv[1]))
