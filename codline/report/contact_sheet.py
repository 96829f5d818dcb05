"""The query of a cycle as a single picture: python -m codline.report.contact_sheet CYCLE PNG"""

import sys
from pathlib import Path

import pyarrow as pa

from codline.core.files import atomic_write
from codline.data import dataset_info, image_store, tables
from codline.data.image_names import ImageNames
from codline.report import gallery
from codline.report.query_images import label_text, query_pictures, read_annotations
from codline.runtime.pipeline import Pipeline

MAX_IMAGES = 36


def render_contact_sheet(pipeline: Pipeline, cycle: str) -> bytes:
    """A PNG of the images by rank."""
    info = dataset_info.read_dataset_info(pipeline.path("annotate", "dataset", cycle))
    query = tables.read_table(pipeline.path("annotate", "query", cycle), tables.QUERY).sort_by("rank")
    query = query.slice(0, MAX_IMAGES)
    take = image_store.open_image_store(pipeline.path("score", "images", cycle)).take
    annotations, outputs = pipeline.path("annotate", "annotations", cycle), pipeline.path("score", "outputs", cycle)
    pictures = query_pictures(query["id"].to_numpy(), take, info, annotations, outputs)
    return gallery.image_grid(pictures, image_captions(pipeline, cycle, query, info.classes))


def image_captions(pipeline: Pipeline, cycle: str, query: pa.Table, classes: list[str]) -> list[tuple[str, str]]:
    """The label ("?" without one), and the rank with file name or, if the strategy ranks the pool, score."""
    labels = read_annotations(pipeline.path("annotate", "annotations", cycle), len(classes))
    names = ImageNames(pipeline.path("annotate", "files", cycle)).names_of(query["id"].to_numpy())
    has_scores, captions = tables.ranks_pool(pipeline.path("annotate", "query", cycle)), []
    for i, rank, score in zip(*query.select(["id", "rank", "score"]).to_pydict().values(), strict=True):
        detail = names[i][0].rpartition("/")[2] if i in names else f"{score:.3g}" if has_scores else ""
        label = label_text(labels[i], classes) if i in labels else "?"
        captions.append((label, f"#{rank} · {detail}" if detail else f"#{rank}"))
    return captions


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[2])) as part:
        part.write_bytes(render_contact_sheet(Pipeline(), sys.argv[1]))
