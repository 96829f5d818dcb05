"""annotate: labels for the query, from a simulated annotator or from people, and what they cost."""

import numpy as np

from codline.annotators import AnyAnnotator
from codline.annotators.base import AnnotationRequest
from codline.core.files import write_json
from codline.core.params import Section
from codline.data import tables
from codline.data.answers import KnownImages
from codline.data.dataset_info import read_dataset_info
from codline.data.labels import lookup_labels, read_ids
from codline.data.random_streams import generator
from stages.runner import In, Out, run


class Params(Section):
    annotator: AnyAnnotator


def annotate(
    params: Params, *, seed: int, cycle: str, dataset: In, files: In, pool: In, labeled: In, query: In, answers: In,
    annotations: Out, cost: Out,
) -> None:  # fmt: skip
    annotator, asked = params.annotator, read_ids(query, tables.QUERY)
    annotator.check_answers_file(cycle, str(answers))
    so_far = tables.read_table(labeled, tables.LABELED, "id", "label").to_pydict()
    labels, images = dict(zip(*so_far.values(), strict=True)), KnownImages(files, pool)
    classes, true_labels = read_dataset_info(dataset).classes, np.empty(0, np.int32)
    if annotator.needs_true_labels:
        true_labels = lookup_labels(asked, answers, tables.ORACLE, len(classes))
    request = AnnotationRequest(cycle, asked, true_labels, classes, answers, images, labels)
    result = annotator.annotate(request, generator(seed, "annotator", cycle))
    tables.write_columns([result.ids, result.labels, result.names], tables.ANNOTATIONS, annotations)
    write_json(cost, {"asked": len(asked), "answered": len(result.ids), "wrong": result.wrong_count})


if __name__ == "__main__":
    run(annotate)
