"""The query of a cycle as one picture: python -m codline.sheets c3 where.png"""

import sys
from pathlib import Path

import numpy as np

from codline import dataset as datasets, gallery, images as image_store, tables
from codline.files import whole
from codline.wiring import Wiring

SHOWN = 36


def query(wiring: Wiring, cycle: str) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Images, most wanted first, each with two lines: its label (if it has one yet), and its rank and score."""
    classes = datasets.opened(wiring.path("annotate", "dataset", cycle)).classes
    asked = tables.read(wiring.path("annotate", "query", cycle), tables.QUERY).sort_by("rank").slice(0, SHOWN)
    path = wiring.path("annotate", "annotations", cycle)
    answers = tables.read(path, tables.ANNOTATIONS) if path.exists() else None
    labels = dict(zip(answers["id"].to_pylist(), answers["label"].to_pylist(), strict=True)) if answers else {}
    captions = [
        (classes[labels[i]] if i in labels else "?", f"#{rank} · {score:.3g}")
        for i, rank, score in zip(asked["id"].to_pylist(), asked["rank"].to_pylist(), asked["score"].to_pylist(), strict=True)
    ]
    return image_store.opened(wiring.path("score", "images", cycle)).take(asked["id"].to_numpy()), captions


def sheet(wiring: Wiring, cycle: str) -> bytes:
    return gallery.sheet(*query(wiring, cycle))


if __name__ == "__main__":
    with whole(Path(sys.argv[2])) as part:
        part.write_bytes(sheet(Wiring(), sys.argv[1]))
