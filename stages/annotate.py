"""annotate: the query -> labels for it, and what they cost."""

import numpy as np

from codline.annotators import AnyAnnotator
from codline.annotators.base import Question
from codline.core import random_streams
from codline.core.files import write_json
from codline.core.params import Section
from codline.data import dataset_info, tables
from codline.data.labels import ids_of, looked_up
from stages.runner import In, Out, run


class Params(Section):
    annotator: AnyAnnotator


def annotate(
    params: Params, *, seed: int, cycle: str, dataset: In, oracle: In, query: In, annotations: Out, cost: Out
) -> None:
    asked = ids_of(query, tables.QUERY)
    truth = looked_up(asked, oracle, tables.ORACLE) if params.annotator.knows_truth else np.empty(0, np.int32)
    answers = params.annotator.answer(
        Question(cycle, asked, truth, dataset_info.opened(dataset).classes),
        random_streams.stream(seed, "annotator", cycle),
    )
    columns = [asked, answers.labels, [params.annotator.name] * len(asked)]
    tables.write(tables.made(columns, tables.ANNOTATIONS), tables.ANNOTATIONS, annotations)
    write_json(cost, {"asked": len(asked), "answered": len(answers.labels), "wrong": answers.wrong})


if __name__ == "__main__":
    run(annotate)
