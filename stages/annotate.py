"""annotate: labels for the query, from a simulated annotator or from people, and what they cost."""

import numpy as np

from codline.annotators import AnyAnnotator
from codline.annotators.base import AnnotationRequest
from codline.core.files import write_json
from codline.core.params import Section
from codline.data import tables
from codline.data.dataset_info import read_dataset_info
from codline.data.labels import lookup_labels, read_ids
from codline.data.random_streams import generator
from stages.runner import In, Out, run


class Params(Section):
    annotator: AnyAnnotator


def annotate(
    params: Params, *, seed: int, cycle: str, dataset: In, oracle: In, query: In, annotations: Out, cost: Out
) -> None:
    annotator, ids = params.annotator, read_ids(query, tables.QUERY)
    true_labels = lookup_labels(ids, oracle, tables.ORACLE) if annotator.needs_true_labels else np.empty(0, np.int32)
    request = AnnotationRequest(cycle, ids, true_labels, read_dataset_info(dataset).classes)
    answers = annotator.annotate(request, generator(seed, "annotator", cycle))
    tables.write_columns([ids, answers.labels, [annotator.name] * len(ids)], tables.ANNOTATIONS, annotations)
    write_json(cost, {"asked": len(ids), "answered": len(answers.labels), "wrong": answers.wrong_count})


if __name__ == "__main__":
    run(annotate)
