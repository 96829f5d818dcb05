"""The query of a cycle as one picture: python -m codline.sheets c3 where.png"""

import sys
from pathlib import Path

import numpy as np

from codline.core.files import whole
from codline.data import dataset_info, image_store, tables
from codline.report import gallery, query_images
from codline.runtime.pipeline import Pipeline

SHOWN = 36


def query(pipeline: Pipeline, cycle: str) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Images, most wanted first, each with two lines: its label (if it has one yet), and its rank and score."""
    facts = dataset_info.opened(pipeline.path("annotate", "dataset", cycle))
    asked = tables.read(pipeline.path("annotate", "query", cycle), tables.QUERY).sort_by("rank").slice(0, SHOWN)
    annotations = pipeline.path("annotate", "annotations", cycle)
    labels = query_images.answered(annotations)
    captions = [
        (query_images.named(labels[i], facts.classes) if i in labels else "?", f"#{rank} · {score:.3g}")
        for i, rank, score in zip(
            asked["id"].to_pylist(), asked["rank"].to_pylist(), asked["score"].to_pylist(), strict=True
        )
    ]
    take = image_store.opened(pipeline.path("score", "images", cycle)).take
    return query_images.shown(
        asked["id"].to_numpy(), take, facts, annotations, pipeline.path("score", "outputs", cycle)
    ), captions


def sheet(pipeline: Pipeline, cycle: str) -> bytes:
    return gallery.sheet(*query(pipeline, cycle))


if __name__ == "__main__":
    with whole(Path(sys.argv[2])) as part:
        part.write_bytes(sheet(Pipeline(), sys.argv[1]))
