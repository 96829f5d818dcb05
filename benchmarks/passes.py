"""The score stage with worker processes, compared with one process: python -m benchmarks.passes

Elapsed seconds of the whole stage, so on a machine with as many free cores as workers. Workers are forked from a fork
server, as in a campaign; without one, each takes the seconds of importing torch to start.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.campaigns import CampaignSize, prepared_campaign
from benchmarks.harness import (
    Contender,
    Measurement,
    add_remarks,
    argument_parser,
    compare,
    counted_rounds,
    report_each,
)
from codline.core.params import Compute
from codline.engine.setting import ENGINE
from codline.learning.compute import configure
from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn
from tests.project import running_fork_server
from tests.workspace import Workspace

SHAPE = (3, 32, 32)


def score(workspace: Workspace, engine: str) -> str:
    """Run the stage; returns the hash of what it wrote."""
    os.environ[ENGINE] = engine
    workspace.run("score", "c1")
    return "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in workspace.outputs("score", "c1"))


def compare_hashes(reference: str, hashes: str) -> str:
    assert hashes == reference
    return "the same bytes"


def campaign_sizes(arguments: argparse.Namespace) -> dict[str, CampaignSize]:
    small = CampaignSize(600, SHAPE, SmallCnn(width=4), start=64, budget=32, epochs=1, batch_size=64)
    large = replace(small, count=arguments.images, model=ResNet18(width=16), batch_size=512)
    return {"small_cnn": small} if arguments.quick else {"resnet18 of width 16": large}


def measure_passes(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    for name, size in campaign_sizes(arguments).items():
        with prepared_campaign(size) as workspace:
            workspace.run("train", "c1")
            contenders: dict[str, Contender] = {
                "one process": partial(score, workspace, "local"),
                **{f"{n} workers": partial(score, workspace, f"local:{n}") for n in arguments.workers},
            }
            case = f"score, {name}, {size.count:,} images 32x32"
            rounds, once = counted_rounds(arguments), float("inf")
            rows = compare({case: contenders}, rounds, time.perf_counter, long_seconds=once)
            yield add_remarks(rows, compare_hashes)


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=2)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    arguments = parser.parse_args(words)
    configure(Compute(device="cpu"))
    title = "Worker processes: elapsed seconds of the score stage"
    with (
        TemporaryDirectory(prefix="codline-benchmark-") as folder,
        running_fork_server(Path(folder, "socket")) as environment,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(ENGINE, "local")
        for variable, value in environment.items():
            patch.setenv(variable, value)
        report_each(title, measure_passes(arguments), arguments.json)


if __name__ == "__main__":
    main()
