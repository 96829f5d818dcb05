"""Hand out a query for labelling, as images and an answer sheet: python -m codline.labeling.query_export CYCLE"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from codline.annotators.people import People
from codline.core.errors import UserError, exit_on_error
from codline.core.files import atomic_directory, write_text
from codline.core.params_errors import suggestion
from codline.data import answers, output_store, tables
from codline.data.answers import Sheet
from codline.data.dataset_info import read_dataset_info
from codline.labeling.answer_sheet import complete_sheet
from codline.labeling.check_answers import AnswerSheets, read_annotator
from codline.labeling.originals import distinct_name, find_originals
from codline.labeling.query_page import Tile, render_page
from codline.runtime.pipeline import Pipeline

DIRECTORY = Path("queries")
PAGE = "index.html"


def export_query(pipeline: Pipeline, cycle: str, copy: bool = False) -> str:
    """Write the images, a page that shows them, and the answer sheet; return what the user should do next."""
    if cycle not in pipeline.queries:
        raise UserError(f"cycle: found {cycle!r}{suggestion(cycle, list(pipeline.queries))}")
    ids, annotator, handout = query_ids(pipeline, cycle), read_annotator(pipeline.params), None
    if isinstance(annotator, People):
        handout = update_sheet(pipeline, cycle, annotator, ids)
        ids = handout.ids
    export_images(pipeline, cycle, ids, copy)
    exported = f"{len(ids)} images are in {DIRECTORY / cycle}, {DIRECTORY / cycle / PAGE} shows them."
    if handout is None:
        return exported
    if not handout.unlabeled:
        return f"{exported} All of them have a label."
    classes = ", ".join(read_dataset_info(pipeline.path("annotate", "dataset", cycle)).classes)
    path = annotator.answers_file(cycle)
    todo = f"fill in the column `label` of {path} (one of {classes}), then run `codline run`"
    return f"{exported} {handout.unlabeled} of them have no label yet: {todo}."


def hand_out_query(pipeline: Pipeline, cycle: str) -> list[str]:
    """Before annotate: complete the sheet, and export the images if one has no label. Returns remarks for the user."""
    annotator, ids = read_annotator(pipeline.params), query_ids(pipeline, cycle)
    if not isinstance(annotator, People):
        return []
    handout = update_sheet(pipeline, cycle, annotator, ids)
    if not handout.unlabeled:
        return []
    export_images(pipeline, cycle, handout.ids, only_if_changed=True)
    return describe_unused_labels(pipeline)


def describe_unused_labels(pipeline: Pipeline) -> list[str]:
    """People should not be asked for labels that exist."""
    used, existing = (
        tables.count_rows(pipeline.path("prepare", name), schema)
        for name, schema in (("labeled", tables.LABELED), ("oracle", tables.ORACLE))
    )
    start = f"prepare.start: {pipeline.params['prepare']['start']}"
    sentence = f"{existing - used} labels of the dataset are not used ({start}); -S prepare.start=all uses them"
    return [sentence] if existing > used else []


def query_ids(pipeline: Pipeline, cycle: str) -> np.ndarray:
    """By rank."""
    query = tables.read_table(pipeline.path("annotate", "query", cycle), tables.QUERY).sort_by("rank")
    ids: np.ndarray = query["id"].to_numpy()
    return ids


class Handout(NamedTuple):
    ids: np.ndarray  # the images of a sheet: those of the query by rank, then others that were labeled for it before
    unlabeled: int


def update_sheet(pipeline: Pipeline, cycle: str, people: People, query: np.ndarray) -> Handout:
    sheets = AnswerSheets(pipeline, people)
    found, _ = sheets.read()
    path, before = sheets.paths[cycle], found.get(cycle, Sheet())
    others = {i: answer for name, sheet in found.items() if name != cycle for i, answer in sheet.answers.items()}
    asked = answers.open_questions(before, query.tolist())
    complete_sheet(path, before, asked, sheets.images.names.names_of(np.array(asked, np.int64)), others)
    completed = answers.read_sheet(path, sheets.images, sheets.classes)
    sheets.history.record(found | {cycle: completed})
    labeled = np.setdiff1d(np.array(list(completed.answers), np.int64), query)
    ids = [i for i in query.tolist() if i in completed.rows] + labeled[np.isin(labeled, sheets.images.pool)].tolist()
    return Handout(np.array(ids, np.int64), len(answers.open_questions(completed, query.tolist())))


def export_images(
    pipeline: Pipeline, cycle: str, ids: np.ndarray, copy: bool = False, only_if_changed: bool = False
) -> None:
    originals, guesses, taken = find_originals(pipeline, ids), predictions(pipeline, cycle, ids), {PAGE}
    tiles = [Tile(distinct_name(originals[i].name, i, taken), i, guesses[i]) for i in ids.tolist()]
    folder, page = pipeline.root / DIRECTORY / cycle, render_page(cycle, tiles)
    if only_if_changed and (folder / PAGE).exists() and (folder / PAGE).read_text(encoding="utf-8") == page:
        return
    with atomic_directory(folder) as directory:
        for tile in tiles:
            originals[tile.image_id].write(directory, tile.name, copy)
        write_text(directory / PAGE, page)


def predictions(pipeline: Pipeline, cycle: str, ids: np.ndarray) -> dict[int, str]:
    """The class that the cycle's model predicts, with its probability; empty for segmentation."""
    info = read_dataset_info(pipeline.path("annotate", "dataset", cycle))
    if info.task == "segmentation":
        return dict.fromkeys(ids.tolist(), "")
    store = output_store.open_output_store(pipeline.path("score", "outputs", cycle), info.output_shape)
    known = ids[np.isin(ids, store.ids)]
    probs = output_store.softmax(store.take(known))
    best = probs.argmax(axis=1)
    texts = {i: f"{info.classes[k]} {p[k]:.0%}" for i, k, p in zip(known.tolist(), best, probs, strict=True)}
    return dict.fromkeys(ids.tolist(), "") | texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cycle")
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--automatic", action="store_true")
    arguments = parser.parse_args()
    with exit_on_error():
        if arguments.automatic:
            sys.stdout.writelines(f"{remark}\n" for remark in hand_out_query(Pipeline(), arguments.cycle))
        else:
            message = export_query(Pipeline(), arguments.cycle, arguments.copy)
            Console(highlight=False).print(message, soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
