"""Check all of params.yaml before anything runs: python -m stages check_params [--derived] [params.yaml ...]

Each section is checked as its stage would check it, then what sections require of each other. `--derived` prints the
sections that follow from the others, as JSON: {name of a section: its content}.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from codline.acquisition.candidates import Candidates
from codline.annotators.base import Annotator
from codline.core import params, params_errors
from codline.core.errors import CodlineError, UserError
from codline.learning.auxiliary_requirements import require_auxiliary_network, require_loss_predictor
from codline.objectives.ema import EmaObjective
from codline.objectives.ll4al import Ll4alObjective
from codline.pickers.base import Picker
from codline.pickers.top import Top
from codline.strategies.base import BatchStrategy, Strategy
from stages.runner import STAGES


def check(path: Path, derive: bool = False) -> dict[str, Any]:
    """Returns the derived sections. Those in the file are not compared with them if they are to be replaced."""
    raw = params.read_yaml(path)
    params.check_section_names(raw, [*params.SHARED_SECTIONS, *STAGES])
    params.parse_seed(raw)
    params.parse_section(raw, "compute", params.Compute)
    queries = len(params.parse_cycles(raw)) - 1
    sections: dict[str, Any] = {
        name: params.parse_section(raw, name, importlib.import_module(f"stages.{name}").Params) for name in STAGES
    }
    train, strategy = sections["train"], sections["score"].strategy
    has_average = any(isinstance(each, EmaObjective) for each in train.objectives)
    names = strategy.reference_models(first_cycle=True) | strategy.reference_models(first_cycle=False)
    for name in sorted(names, key=str):
        require_auxiliary_network(name, has_average, train.snapshots, train.committee)
    model, dataset = sections["prepare"].model, sections["prepare"].dataset
    model.check_task(dataset.name, dataset.task)
    model.check_crop_size(train.augment.size)
    strategy.check_dropout(model.dropout)
    for objective in train.objectives:
        objective.check_task(dataset.task)
    strategy.check_installed()
    strategy.check_task(dataset.task)
    check_picker(strategy, sections["select"].pick)
    if strategy.uses_predicted_losses:
        require_loss_predictor(any(isinstance(each, Ll4alObjective) for each in train.objectives))
    annotator = sections["annotate"].annotator
    check_true_labels(strategy, annotator)
    check_annotator_task(annotator, dataset.name, dataset.task)
    start, budget = raw["prepare"]["start"], raw["select"]["budget"]
    if start == "all" and queries and annotator.needs_true_labels:
        raise UserError(
            "params.yaml: prepare.start: found 'all', which leaves nothing to query;"
            " expected a single cycle, which has no query"
        )
    if isinstance(start, float) and isinstance(budget, float) and start + queries * budget > 1:
        raise UserError(
            f"params.yaml: select.budget: {queries} queries of {budget:.0%} after a start of {start:.0%}"
            " ask for more than the whole pool"
        )
    check_amounts(sections["score"].subset, sections["score"].candidates, budget)
    if not derive:
        params.parse_inputs(raw)
        for name, link in params.parse_chain(raw).queries.items():
            annotator.check_answers_file(name, link.answers)
    queries_section = params.query_links(raw["cycles"], annotator.answers_file)
    return {"inputs": dataset.input_paths(), "queries": queries_section}


def check_amounts(subset: float | None, candidates: Candidates | None, budget: float) -> None:
    """Refuse fewer images to choose among than a query has; for shares, score knows the numbers."""
    amounts = {"subset": subset, "candidates.keep": candidates.keep if candidates else None}
    for name, amount in amounts.items():
        if isinstance(amount, int) and isinstance(budget, int) and amount < budget:
            raise UserError(f"params.yaml: score.{name}: found {amount}, expected at least select.budget ({budget})")


def check_picker(strategy: Strategy, picker: Picker) -> None:
    """A strategy that selects whole queries leaves a picker nothing to draw from."""
    if isinstance(strategy, BatchStrategy) and not isinstance(picker, Top):
        raise UserError(
            f"params.yaml: select.pick.name: found {picker.name!r}, but {params_errors.plugin_name(type(strategy))}"
            " selects whole queries; expected top"
        )


def check_true_labels(strategy: Strategy, annotator: Annotator) -> None:
    """An oracle baseline needs a simulated campaign."""
    if strategy.uses_true_labels and not annotator.needs_true_labels:
        name = params_errors.plugin_name(type(strategy))
        found = f"found {name!r}, which uses the true labels, but the annotator {annotator.name} has none"
        raise UserError(f"params.yaml: score.strategy.name: {found}; expected annotate.annotator {{name: simulated}}")


def check_annotator_task(annotator: Annotator, dataset: str, task: str) -> None:
    """People write the name of a class, not a mask."""
    if not annotator.needs_true_labels and task == "segmentation":
        found = f"found {annotator.name!r}, but {dataset} is a segmentation dataset, whose labels are masks"
        raise UserError(f"params.yaml: annotate.annotator.name: {found}; expected simulated")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages check_params", description=__doc__)
    parser.add_argument("--derived", action="store_true")
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("params.yaml")])
    arguments = parser.parse_args()
    for path in arguments.paths:
        try:
            derived = check(path, arguments.derived)
        except CodlineError as error:
            sys.stderr.write(f"codline: {f'{path.stem}: ' if len(arguments.paths) > 1 else ''}{error}\n")
            sys.exit(error.exit_code)
        if arguments.derived:
            sys.stdout.write(json.dumps(derived) + "\n")


if __name__ == "__main__":
    main()
