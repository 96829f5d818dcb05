"""One sampling iteration (score and select, as stages) of every strategy on the same pool, beside COD's: python -m benchmarks.sampling_time"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from benchmarks.campaigns import Plan, two_cycles
from benchmarks.harness import Contender, Measured, clock, compared, parser, rounds, told
from codline.models.small_cnn import SmallCnn
from codline.strategies import AnyStrategy
from codline.strategies.base import Strategy
from codline.strategies.learner_base import AdversarialLearner, GraphLearner
from tests.workspace import Workspace

SNAPSHOTS = [5, 10, 15]  # steps before the end of a short training: the committee's members
ABSENT = ("baal", "scikit_activeml", "true_loss")  # other libraries' work, and a control that is told the answers
LONG = 3.0  # seconds of those that are run once: they train, so a first time is like any other
FIRST = ("cod", "random", "core_set", "vaal", "ll4al")  # COD, then the paper's table


def settings(steps: int) -> dict[str, dict[str, Any]]:
    """Where a strategy's own values would take a CPU hours, or name snapshots of a long training."""
    small = {"steps": steps, "batch_size": 64, "width": 16}
    return dict.fromkeys(("vaal", "sraal", "ta_vaal"), small) | {
        "tod": {"steps": SNAPSHOTS[0]},
        "qbc": {"members": SNAPSHOTS},
    }


def strategies(steps: int) -> dict[str, Strategy]:
    kinds = {kind.model_fields["name"].default: kind for kind in get_args(get_args(AnyStrategy)[0])}
    ordered = [*FIRST, *sorted(kinds.keys() - {*FIRST, *ABSENT})]
    return {name: kinds[name](**settings(steps).get(name, {})) for name in ordered}


def contender(workspace: Workspace, name: str, strategy: Strategy, foretelling: Path) -> Contender:
    companions = {"auxiliary": foretelling} if strategy.predicted else {}
    workspace.change(**{"score.strategy": strategy.model_dump()})
    params = Path(shutil.copy("params.yaml", f"{name}.yaml"))

    def act() -> None:
        workspace.run("score", "c2", params=params, **companions)
        workspace.run("select", "c2", params=params)

    return act


def foretold(workspace: Workspace) -> Path:
    """What foretells losses, trained beside the same weights: a training keeps the companion of one objective."""
    kept = workspace.pipeline.params["train"]["objective"]
    workspace.change(**{"train.objective": {"name": "ll4al", "persists": False}})
    workspace.run(
        "train",
        "c2",
        auxiliary=Path("foretelling.safetensors"),
        model=Path("beside.safetensors"),
        curve=Path("beside.csv"),
    )
    workspace.change(**{"train.objective": kept})
    return Path("foretelling.safetensors")


def remarked(row: Measured, strategy: Strategy, cod: float) -> Measured:
    """What those that train were told, and how long they would take at their own number of steps."""
    if row.seconds is None or not isinstance(strategy, GraphLearner | AdversarialLearner):
        return row
    steps, own = strategy.steps, type(strategy).model_fields["steps"].default
    if isinstance(strategy, GraphLearner):
        return replace(row, note=f"{steps} steps")
    each = max(row.seconds - cod, 0) / steps
    size = f"{steps} steps, width {strategy.width}, batch {strategy.batch_size}"
    return replace(row, note=f"{size}; with {own:,} steps, as published, up to {cod + own * each:,.0f} s")


def plan(asked: argparse.Namespace) -> Plan:
    if asked.quick:
        return Plan(300, (1, 8, 8), SmallCnn(width=4), start=100, budget=20)
    return Plan(asked.images, budget=min(500, asked.images // 10))


def main(words: list[str] | None = None) -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--images", type=int, default=3_000)
    arguments.add_argument("--steps", type=int, default=20, help="of the adversarial strategies")
    asked = arguments.parse_args(words)
    chosen = strategies(2 if asked.quick else asked.steps)
    size = plan(asked)
    with two_cycles(size, **{"train.epochs": 5, "train.snapshots": SNAPSHOTS}) as workspace:
        foretelling = foretold(workspace)
        case = f"{size.count:,} images, {size.shape[1]}x{size.shape[2]}, {size.budget} asked for"
        found = compared(
            {case: {name: contender(workspace, name, one, foretelling) for name, one in chosen.items()}},
            rounds(asked),
            clock(asked),
            long=LONG,
        )
    cod = found[0].seconds or 0.0
    told(
        "One sampling iteration: CPU seconds, and ratios to COD's",
        [remarked(row, chosen[row.contender], cod) for row in found],
        asked.json,
    )


if __name__ == "__main__":
    main()
