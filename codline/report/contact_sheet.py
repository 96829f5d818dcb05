"""The query of a cycle as a single picture: python -m codline.report.contact_sheet CYCLE PNG"""

import sys
from pathlib import Path

from codline.core.files import atomic_write
from codline.data import dataset_info, image_store, tables
from codline.data.image_names import ImageNames
from codline.report import gallery
from codline.report.query_images import label_text, query_pictures, read_annotations
from codline.runtime.pipeline import Pipeline

MAX_IMAGES = 36


def render_contact_sheet(pipeline: Pipeline, cycle: str) -> bytes:
    """A PNG of the images by rank, each with its label ("?" if it has none yet), rank, and file name or score."""
    info = dataset_info.read_dataset_info(pipeline.path("annotate", "dataset", cycle))
    path = pipeline.path("annotate", "query", cycle)
    query, ranks_pool = tables.read_table(path, tables.QUERY).sort_by("rank"), tables.ranks_pool(path)
    query = query.slice(0, MAX_IMAGES)
    annotations = pipeline.path("annotate", "annotations", cycle)
    labels = read_annotations(annotations, len(info.classes))
    names = ImageNames(pipeline.path("annotate", "files", cycle)).names_of(query["id"].to_numpy())
    captions = []
    for i, rank, score in zip(*query.select(["id", "rank", "score"]).to_pydict().values(), strict=True):
        detail = names[i][0].rpartition("/")[2] if i in names else f"{score:.3g}" if ranks_pool else ""
        label = label_text(labels[i], info.classes) if i in labels else "?"
        captions.append((label, f"#{rank} · {detail}" if detail else f"#{rank}"))
    take = image_store.open_image_store(pipeline.path("score", "images", cycle)).take
    outputs = pipeline.path("score", "outputs", cycle)
    return gallery.image_grid(query_pictures(query["id"].to_numpy(), take, info, annotations, outputs), captions)


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[2])) as part:
        part.write_bytes(render_contact_sheet(Pipeline(), sys.argv[1]))
