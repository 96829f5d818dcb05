"""What `codline study` adds to its campaigns, compared with their stages called as functions on as many processes.

python -m benchmarks.studies

The functions run in two halves, before and after the study, so that a machine that becomes slower or faster meanwhile
favours neither. `codline run` is measured on a few campaigns, one after the other, and scaled.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import contextlib
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ruamel.yaml import YAML

from benchmarks.campaigns import without_progress_bars
from benchmarks.harness import Measurement, argument_parser, report_each
from codline.core import params
from tests.project import Project, clone_with_small_campaign, free_port
from tests.workspace import REPOSITORY, Workspace, create_workspace

TITLE = "Studies: wall-clock seconds"
STRATEGIES = (
    "random",
    "entropy",
    "least_confidence",
    "margin",
    "cod",
    "cod_diverse",
    "core_set",
    "badge",
    "typiclust",
    "prob_cover",
)
CYCLES, JOBS = 3, 2
Campaign = tuple[str, int]  # strategy and seed


def write_params(root: Path, **changes: object) -> Workspace:
    """The committed params.yaml, instead of the small campaign of the tests, with three cycles."""
    shutil.copy(REPOSITORY / "params.yaml", root)
    workspace = Workspace(root)
    workspace.change(**params.cycle_chain(CYCLES) | changes)
    return workspace


def run_functions(directory: str, campaigns: list[Campaign]) -> None:
    """Run campaigns one after the other in this process."""
    for strategy, seed in campaigns:
        root = Path(directory, f"{strategy}-{seed}")
        root.mkdir()
        with contextlib.chdir(root), without_progress_bars():
            create_workspace(root)
            workspace = write_params(root, **{"score.strategy": {"name": strategy}, "seed": seed})
            for name in workspace.pipeline.stage_names():
                stage, _, cycle = name.partition("@")
                workspace.run(stage, cycle or None)


def run_functions_in_processes(campaigns: list[Campaign]) -> None:
    with (
        TemporaryDirectory(prefix="codline-benchmark-") as directory,
        ProcessPoolExecutor(JOBS, get_context("spawn")) as pool,
    ):
        list(pool.map(partial(run_functions, directory), [campaigns[number::JOBS] for number in range(JOBS)]))


class Seconds(NamedTuple):
    wall: float
    cpu: float  # of all processes, which other work on the machine affects less


def measured(function: Callable[[], object]) -> Seconds:
    began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    function()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(time.perf_counter() - began, ended.ru_utime + ended.ru_stime - cpu.ru_utime - cpu.ru_stime)


@contextlib.contextmanager
def project_with_study(strategies: tuple[str, ...], seeds: int) -> Iterator[Project]:
    """A clone with the databases of Prefect and MLflow."""
    grid = {"axes": {"score.strategy.name": list(strategies)}, "seeds": list(range(seeds))}
    with TemporaryDirectory(prefix="codline-benchmark-") as directory:
        root, api = Path(directory) / "clone", f"http://127.0.0.1:{free_port()}/api"
        root.mkdir()
        project = clone_with_small_campaign(root, PREFECT_API_URL=api)
        write_params(root)
        YAML(typ="safe", pure=True).dump({"name": "speed", "title": "Speed"} | grid, root / "studies/speed.yaml")
        project.must("git", "commit", "-qam", "campaign of three cycles")
        project.must("codline", "setup")
        yield project


def measurements(strategies: tuple[str, ...], seeds: int, runs: int) -> Iterator[list[Measurement]]:
    """`runs`: campaigns by `codline run`."""
    campaigns = [(strategy, seed) for seed in range(seeds) for strategy in strategies]
    half, count = len(campaigns) // 2, len(campaigns)
    with project_with_study(strategies, seeds) as project:
        command = ("codline", "study", "speed", "--jobs", str(JOBS))
        before = measured(partial(run_functions_in_processes, campaigns[:half]))
        study = measured(partial(project.must, *command, timeout=36000))
        after = measured(partial(run_functions_in_processes, campaigns[half:]))
        bare = Seconds(before.wall + after.wall, before.cpu + after.cpu)
        case = f"{count} campaigns of {CYCLES} cycles, {JOBS} at a time"
        yield [row(case, "functions in a loop", bare, bare), row(case, "codline study", study, bare)]
        yield [row(case, "codline study, all done", measured(partial(project.must, *command)), bare)]
        runs_of_others = partial(run_each, project, runs)
        run = Seconds(*(seconds / runs * count for seconds in measured(runs_of_others)))
        yield [row(case, f"codline run for each (from {runs})", Seconds(run.wall / JOBS, run.cpu), bare)]


def run_each(project: Project, runs: int) -> None:
    for number in range(runs):
        project.must("codline", "run", "--seed", str(100 + number))


def row(case: str, contender: str, seconds: Seconds, bare: Seconds) -> Measurement:
    cpu = f"{seconds.cpu:.0f} s of CPU, {seconds.cpu / bare.cpu:.2f} times"
    return Measurement(case, contender, seconds.wall, seconds.wall / bare.wall, note=cpu)


def main(words: list[str] | None = None) -> None:
    arguments = argument_parser(__doc__, rounds=1).parse_args(words)
    sizes = (STRATEGIES[:2], 1, 1) if arguments.quick else (STRATEGIES, 10, 2)
    report_each(TITLE, measurements(*sizes), arguments.json)


if __name__ == "__main__":
    main()
