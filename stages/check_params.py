"""Check all of params.yaml before anything runs: python -m stages check_params [params.yaml ...]

Each section is checked as its stage would check it, then what sections require of each other.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from codline.annotators.base import Annotator
from codline.core import params, params_errors
from codline.core.errors import CodlineError, UserError
from codline.learning import auxiliary_networks
from codline.objectives.ema import EmaObjective
from codline.objectives.ll4al import Ll4alObjective
from codline.pickers.base import Picker
from codline.pickers.top import Top
from codline.strategies.base import BatchStrategy, Strategy
from stages.runner import STAGES


def check(path: Path) -> None:
    raw = params.read_yaml(path)
    params.check_section_names(raw, [*params.SHARED_SECTIONS, *STAGES])
    params.parse_seed(raw)
    params.parse_section(raw, "compute", params.Compute)
    queries = len(params.parse_cycles(raw)) - 1
    sections: dict[str, Any] = {
        name: params.parse_section(raw, name, importlib.import_module(f"stages.{name}").Params) for name in STAGES
    }
    train, strategy = sections["train"], sections["score"].strategy
    for name in strategy.reference_models(first_cycle=True) | strategy.reference_models(first_cycle=False):
        auxiliary_networks.require_auxiliary_network(name, isinstance(train.objective, EmaObjective), train.snapshots)
    model, dataset = sections["prepare"].model, sections["prepare"].dataset
    model.check_task(dataset.name, dataset.task)
    model.check_crop_size(train.augment.size)
    strategy.check_installed()
    strategy.check_task(dataset.task)
    check_picker(strategy, sections["select"].pick)
    if strategy.uses_predicted_losses:
        auxiliary_networks.require_loss_predictor(isinstance(train.objective, Ll4alObjective))
    check_true_labels(strategy, sections["annotate"].annotator)
    start, budget = raw["prepare"]["start"], raw["select"]["budget"]
    if start == "all" and queries and sections["annotate"].annotator.needs_true_labels:
        raise UserError(
            "params.yaml: prepare.start: found 'all', which leaves nothing to query;"
            " expected a single cycle, which has no query"
        )
    if isinstance(start, float) and isinstance(budget, float) and start + queries * budget > 1:
        raise UserError(
            f"params.yaml: select.budget: {queries} queries of {budget:.0%} after a start of {start:.0%}"
            " ask for more than the whole pool"
        )


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


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:] or ["params.yaml"]]
    for path in paths:
        try:
            check(path)
        except CodlineError as error:
            sys.stderr.write(f"codline: {f'{path.stem}: ' if len(paths) > 1 else ''}{error}\n")
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
