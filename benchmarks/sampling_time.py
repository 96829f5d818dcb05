"""Time of score and select with every strategy on the same pool, relative to COD: python -m benchmarks.sampling_time"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from benchmarks.campaigns import CampaignSize, campaign_at_second_score
from benchmarks.harness import Contender, Measurement, argument_parser, chosen_clock, compare, counted_rounds, report
from codline.models.small_cnn import SmallCnn
from codline.strategies import AnyStrategy
from codline.strategies.base import Strategy
from codline.strategies.learner_base import AdversarialLearner, GraphLearner
from tests.workspace import Workspace

SNAPSHOTS = [5, 10, 15]  # steps before the end of training, for snapshot_committee and tod
ABSENT = ("baal", "scikit_activeml", "true_loss")  # other libraries, and the oracle baseline
LONG = 3.0  # strategies that take more seconds run only once: they train, so a warm-up changes little
ORDER = ("cod", "random", "core_set", "vaal", "ll4al")  # first, as in the paper's table; the others follow by name


def strategy_settings(steps: int) -> dict[str, dict[str, Any]]:
    """For strategies whose defaults would take a CPU hours, or need snapshots of a long training."""
    small = {"steps": steps, "batch_size": 64, "width": 16}
    return dict.fromkeys(("vaal", "sraal", "ta_vaal"), small) | {
        "tod": {"steps": SNAPSHOTS[0]},
        "snapshot_committee": {"members": SNAPSHOTS},
    }


def make_strategies(steps: int) -> dict[str, Strategy]:
    kinds = {kind.model_fields["name"].default: kind for kind in get_args(get_args(AnyStrategy)[0])}
    ordered = [*ORDER, *sorted(kinds.keys() - {*ORDER, *ABSENT})]
    return {name: kinds[name](**strategy_settings(steps).get(name, {})) for name in ordered}


def make_contender(workspace: Workspace, name: str, strategy: Strategy, loss_predictor: Path) -> Contender:
    auxiliary = {"auxiliary": loss_predictor} if strategy.uses_predicted_losses else {}
    workspace.change(**{"score.strategy": strategy.model_dump()})
    params = Path(shutil.copy("params.yaml", f"{name}.yaml"))

    def score_and_select() -> None:
        workspace.run("score", "c2", params=params, **auxiliary)
        workspace.run("select", "c2", params=params)

    return score_and_select


def train_loss_predictor(workspace: Workspace) -> Path:
    """Train once more, with ll4al: the campaign's own training keeps only the auxiliary networks of its objectives."""
    objectives = workspace.pipeline.params["train"]["objectives"]
    outputs = {name: Path(f"ll4al.{name}") for name in ("auxiliary", "model", "training_curve")}
    workspace.change(**{"train.objectives": [{"name": "ll4al", "persists": False}]})
    workspace.run("train", "c2", **outputs)
    workspace.change(**{"train.objectives": objectives})
    return outputs["auxiliary"]


def describe_training(row: Measurement, strategy: Strategy, cod: float) -> Measurement:
    """Note the settings of strategies that train, and how long they would take with their default number of steps."""
    if row.seconds is None or not isinstance(strategy, GraphLearner | AdversarialLearner):
        return row
    steps, default = strategy.steps, type(strategy).model_fields["steps"].default
    if isinstance(strategy, GraphLearner):
        return replace(row, note=f"{steps} steps")
    seconds_per_step = max(row.seconds - cod, 0) / steps
    total = cod + default * seconds_per_step
    size = f"{steps} steps, width {strategy.width}, batch {strategy.batch_size}"
    return replace(row, note=f"{size}; with {default:,} steps, as published, up to {total:,.0f} s")


def campaign_size(options: argparse.Namespace) -> CampaignSize:
    if options.quick:
        return CampaignSize(300, (1, 8, 8), SmallCnn(width=4), start=100, budget=20)
    return CampaignSize(options.images, budget=min(500, options.images // 10))


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--images", type=int, default=3_000)
    parser.add_argument("--steps", type=int, default=20, help="of the adversarial strategies")
    options = parser.parse_args(words)
    strategies = make_strategies(2 if options.quick else options.steps)
    size = campaign_size(options)
    size = replace(size, model=size.model.model_copy(update={"dropout": 0.5}))  # for mc_dropout and bald
    training = {"train.epochs": 5, "train.snapshots": SNAPSHOTS, "train.committee": 2}
    with campaign_at_second_score(size, **training) as workspace:
        loss_predictor = train_loss_predictor(workspace)
        contenders = {
            name: make_contender(workspace, name, strategy, loss_predictor) for name, strategy in strategies.items()
        }
        case = f"{size.count:,} images, {size.shape[1]}x{size.shape[2]}, budget {size.budget}"
        rows = compare({case: contenders}, counted_rounds(options), chosen_clock(options), long_seconds=LONG)
    cod = rows[0].seconds or 0.0
    rows = [describe_training(row, strategies[row.contender], cod) for row in rows]
    report("One sampling iteration: CPU seconds, and ratios to COD's", rows, options.json)


if __name__ == "__main__":
    main()
