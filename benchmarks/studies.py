"""What `codline study` adds to its campaigns, compared with their stages called as functions on as many processes.

python -m benchmarks.studies

The functions run in two halves, before and after the study, so that a machine that becomes slower or faster meanwhile
favours neither. `codline run` is measured on fewer campaigns and scaled to as many at a time.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import contextlib
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from ruamel.yaml import YAML

from benchmarks.campaigns import without_progress_bars
from benchmarks.harness import Measurement, argument_parser, report_each
from benchmarks.orchestration import timed
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


def functions_seconds(campaigns: list[Campaign]) -> float:
    """Wall-clock seconds on JOBS new processes."""
    with TemporaryDirectory(prefix="codline-benchmark-") as directory:
        began = time.perf_counter()
        with ProcessPoolExecutor(JOBS, get_context("spawn")) as pool:
            parts = [campaigns[number::JOBS] for number in range(JOBS)]
            list(pool.map(partial(run_functions, directory), parts))
        return time.perf_counter() - began


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
        before = functions_seconds(campaigns[:half])
        study = timed(partial(project.must, *command, timeout=36000))
        bare = before + functions_seconds(campaigns[half:])
        case = f"{count} campaigns of {CYCLES} cycles, {JOBS} at a time"
        yield [
            Measurement(case, "functions in a loop", bare),
            Measurement(case, "codline study", study, study / bare),
        ]
        again = timed(partial(project.must, *command))
        yield [Measurement(case, "codline study, all done", again, again / bare)]
        single = timed(lambda: [project.must("codline", "run", "--seed", str(100 + seed)) for seed in range(runs)])
        scaled = single / runs * count / JOBS
        note = f"from {runs} campaigns, one at a time"
        yield [Measurement(case, "codline run for each", scaled, scaled / bare, note=note)]


def main(words: list[str] | None = None) -> None:
    arguments = argument_parser(__doc__, rounds=1).parse_args(words)
    sizes = (STRATEGIES[:2], 1, 1) if arguments.quick else (STRATEGIES, 10, 2)
    report_each(TITLE, measurements(*sizes), arguments.json)


if __name__ == "__main__":
    main()
