"""Check params.yaml whole, as the stages would one by one: python -m stages params.yaml. Of several files, the refused one is named."""

import importlib
import sys
from pathlib import Path
from typing import Any

from codline.annotators.base import Annotator
from codline.core import params
from codline.core.errors import CodlineError, UserError
from codline.learning import auxiliary_networks
from codline.objectives.ema import Ema
from codline.objectives.ll4al import Ll4al
from codline.pickers.base import Picker
from codline.pickers.top import Top
from codline.strategies.base import Chooser, Strategy
from stages.runner import STAGES


def check(path: Path) -> None:
    raw = params.load(path)
    params.known(raw, [*params.SHARED, *STAGES])
    params.seed(raw)
    params.section(raw, "compute", params.Compute)
    queries = len(params.cycles(raw)) - 1
    sections: dict[str, Any] = {
        name: params.section(raw, name, importlib.import_module(f"stages.{name}").Params) for name in STAGES
    }
    train, strategy = sections["train"], sections["score"].strategy
    for name in strategy.needs(first_cycle=True) | strategy.needs(first_cycle=False):
        auxiliary_networks.available(name, isinstance(train.objective, Ema), train.snapshots)
    model, dataset = sections["prepare"].model, sections["prepare"].dataset
    model.suited(dataset.name, dataset.task)
    model.cuttable(train.augment.size)
    strategy.installed()
    strategy.suited(dataset.task)
    whole(strategy, sections["select"].pick)
    if strategy.predicted:
        auxiliary_networks.predictable(isinstance(train.objective, Ll4al))
    simulated(strategy, sections["annotate"].annotator)
    start, budget = raw["prepare"]["start"], raw["select"]["budget"]
    if start == "all" and queries and sections["annotate"].annotator.knows_truth:
        raise UserError(
            "params.yaml: prepare.start: found 'all', which leaves nothing to ask for; expected one cycle, which asks for nothing"
        )
    if isinstance(start, float) and isinstance(budget, float) and start + queries * budget > 1:
        raise UserError(
            f"params.yaml: select.budget: {queries} queries of {budget:.0%} after a start of {start:.0%} ask for more than the whole pool"
        )


def whole(strategy: Strategy, picker: Picker) -> None:
    """A query that was chosen whole is not to be drawn from again."""
    if isinstance(strategy, Chooser) and not isinstance(picker, Top):
        raise UserError(
            f"params.yaml: select.pick.name: found {picker.name!r}, but {params.tag(type(strategy))} chooses whole queries; expected top"
        )


def simulated(strategy: Strategy, annotator: Annotator) -> None:
    """Who is told the answers has to be in a campaign where they are known."""
    if strategy.truth and not annotator.knows_truth:
        found = (
            f"found {params.tag(type(strategy))!r}, which is told the answers, but {annotator.name} do not know them"
        )
        raise UserError(f"params.yaml: score.strategy.name: {found}; expected annotate.annotator {{name: simulated}}")


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:] or ["params.yaml"]]
    for path in paths:
        try:
            check(path)
        except CodlineError as error:
            sys.stderr.write(f"codline: {f'{path.stem}: ' if len(paths) > 1 else ''}{error}\n")
            sys.exit(error.exit_code)
