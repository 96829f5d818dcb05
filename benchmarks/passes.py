"""The score stage with worker processes and Ray workers, compared with one process: python -m benchmarks.passes

Elapsed seconds of the whole stage, so on a machine with as many free cores as workers. Worker processes are forked from
a fork server, as in a campaign; without one, each takes the seconds of importing torch to start. Ray and its workers
run already, after the warm-up round; a case of its own has what starting them takes.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
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
from codline.engine import local_workers, ray_workers
from codline.engine.setting import ENGINE, engine_setting
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


def ray_workers_of(arguments: argparse.Namespace) -> list[int]:
    return [arguments.ray_workers] if arguments.ray_workers and not arguments.quick else []


def start_workers(engine: str) -> None:
    """All that precedes the first image of a pass, and what follows the last one."""
    os.environ[ENGINE] = engine
    setting = engine_setting()
    compute_in_order = ray_workers.compute_in_order if setting.is_ray else local_workers.compute_in_order
    setup = partial(configure, Compute(device="cpu"))
    list(compute_in_order(setting.workers, setup, partial(partial, abs), range(setting.workers)))
    ray_workers.leave_cluster()


def measure_starts(arguments: argparse.Namespace) -> list[Measurement]:
    contenders: dict[str, Contender] = {
        **{f"{n} workers": partial(start_workers, f"local:{n}") for n in arguments.workers},
        **{f"{n} Ray workers": partial(start_workers, f"ray:{n}") for n in ray_workers_of(arguments)},
    }
    return compare({"start": contenders}, counted_rounds(arguments), time.perf_counter, long_seconds=float("inf"))


def measure_passes(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    for name, size in campaign_sizes(arguments).items():
        with prepared_campaign(size) as workspace:
            workspace.run("train", "c1")
            contenders: dict[str, Contender] = {
                "one process": partial(score, workspace, "local"),
                **{f"{n} workers": partial(score, workspace, f"local:{n}") for n in arguments.workers},
                **{f"{n} Ray workers": partial(score, workspace, f"ray:{n}") for n in ray_workers_of(arguments)},
            }
            case = f"score, {name}, {size.count:,} images 32x32"
            rounds, once = counted_rounds(arguments), float("inf")
            rows = compare({case: contenders}, rounds, time.perf_counter, long_seconds=once)
            yield add_remarks(rows, compare_hashes)


def main(words: list[str] | None = None) -> None:
    parser = argument_parser(__doc__, rounds=2)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--ray-workers", type=int, default=2, help="0: none, as with --quick")
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
        report_each(title, chain(measure_passes(arguments), [measure_starts(arguments)]), arguments.json)


if __name__ == "__main__":
    main()
