"""annotate: the query -> labels for it, and what they cost."""

import numpy as np

from codline import dataset as datasets, seeding, tables
from codline.annotators import AnyAnnotator
from codline.annotators.base import Question
from codline.files import write_json
from codline.labels import ids_of, looked_up
from codline.params import Section
from stages._cli import In, Out, run


class Params(Section):
    annotator: AnyAnnotator


def annotate(params: Params, *, seed: int, cycle: str, dataset: In, oracle: In, query: In, annotations: Out, cost: Out) -> None:
    asked = ids_of(query, tables.QUERY)
    truth = looked_up(asked, oracle, tables.ORACLE) if params.annotator.knows_truth else np.empty(0, np.int32)
    answers = params.annotator.answer(Question(cycle, asked, truth, datasets.opened(dataset).classes), seeding.stream(seed, "annotator", cycle))
    columns = [asked, answers.labels, [params.annotator.name] * len(asked)]
    tables.write(tables.made(columns, tables.ANNOTATIONS), tables.ANNOTATIONS, annotations)
    write_json(cost, {"asked": len(asked), "answered": len(answers.labels), "wrong": answers.wrong})


if __name__ == "__main__":
    run(annotate)
