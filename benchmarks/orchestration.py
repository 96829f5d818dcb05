"""What Prefect, DVC, MLflow and processes add to a cycle, compared with its stages called as functions.

python -m benchmarks.orchestration
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import contextlib
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.campaigns import without_progress_bars
from benchmarks.harness import Measurement, argument_parser, report_each, run_in_subprocess
from codline.core import params
from tests.project import Project, clone_with_small_campaign, free_port
from tests.workspace import create_workspace

STAGES = ("train", "score", "select", "annotate", "merge", "evaluate", "diagnose")
ARGUMENTS = ("-S", "train.epochs=5")
TITLE = "Orchestration: wall-clock seconds"


@dataclass(frozen=True)
class CycleSeconds:
    """Seconds of one cycle with a query."""

    total: float
    tasks: dict[str, float]  # {stage: from the start of its task to the end}; some tasks run in parallel
    stages: dict[str, float]  # {stage: measured inside its process}


def seconds_as_functions(directory: str, cycles: int) -> dict[str, float]:
    """{stage of the last cycle with a query: seconds}, in one process; the first cycle has imported everything."""
    seconds = {}
    with contextlib.chdir(directory), without_progress_bars():
        workspace = create_workspace(Path(directory))
        workspace.change(**{"train.epochs": 5} | params.cycle_chain(cycles))
        workspace.run("prepare")
        for cycle in workspace.pipeline.queries:
            seconds = {stage: timed(partial(workspace.run, stage, cycle)) for stage in STAGES}
    return seconds


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_cycle(project: Project, cycles: list[str]) -> CycleSeconds:
    recorded = [recorded_seconds(project, cycle) for cycle in cycles]
    return CycleSeconds(
        statistics.median(cycle.total for cycle in recorded),
        {stage: statistics.median(cycle.tasks[stage] for cycle in recorded) for stage in STAGES},
        {stage: statistics.median(cycle.stages[stage] for cycle in recorded) for stage in STAGES},
    )


def recorded_seconds(project: Project, cycle: str) -> CycleSeconds:
    """The times that Prefect and the stages have recorded."""
    home = Path(project.environment.get("PREFECT_HOME") or project.root / ".prefect")
    with contextlib.closing(sqlite3.connect(home / "prefect.db")) as database:
        query = "select name, start_time, end_time from task_run where name like ? order by start_time"
        tasks = database.execute(query, (f"%@{cycle}",)).fetchall()
        query = "select start_time, end_time from flow_run where name like ? order by start_time"
        flows = database.execute(query, (f"% · {cycle}",)).fetchall()
    notes = project.root / ".codline/seconds"
    return CycleSeconds(
        seconds_between(*flows[-1]),
        {name.partition("@")[0]: seconds_between(start, end) for name, start, end in tasks},
        {stage: json.loads((notes / f"{stage}@{cycle}.json").read_text())["seconds"] for stage in STAGES},
    )


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


@contextlib.contextmanager
def finished_campaign(cycles: int, **environment: str) -> Iterator[Project]:
    """A clone of this project with a small campaign that has run."""
    with TemporaryDirectory(prefix="codline-benchmark-") as directory:
        root, api = Path(directory) / "clone", f"http://127.0.0.1:{free_port()}/api"
        root.mkdir()
        project = clone_with_small_campaign(root, PREFECT_API_URL=api, **environment)
        project.must("codline", "setup")
        project.must("codline", "run", *ARGUMENTS, "--cycles", str(cycles))
        yield project


def stage_rows(functions: dict[str, float], cycle: CycleSeconds) -> list[Measurement]:
    """For each stage: as a function, in its process, as a task."""
    rows = []
    for stage, least in functions.items():
        inside, task = cycle.stages[stage], cycle.tasks[stage]
        rows.append(Measurement(f"stage {stage}", "function", least))
        rows.append(Measurement(f"stage {stage}", "process, measured inside it", inside, inside / least))
        rows.append(Measurement(f"stage {stage}", "Prefect task that runs DVC", task, task / least))
    return rows


def cycle_rows(functions: dict[str, float], plain: CycleSeconds, tracked: CycleSeconds) -> list[Measurement]:
    least, case = sum(functions.values()), "a cycle of seven stages"
    contenders = {
        "functions in one process": (least, ""),
        "codline run, without MLflow": (plain.total, f"Prefect, DVC, processes: {plain.total - least:.1f} s"),
        "codline run": (tracked.total, f"all: {tracked.total - least:.1f} s"),
    }
    return [Measurement(case, name, total, total / least, note=note) for name, (total, note) in contenders.items()]


def command_rows(project: Project, rounds: int) -> list[Measurement]:
    """Commands on a campaign that is up to date."""
    commands = {
        "codline status": ("codline", "status"),
        "dvc status": ("dvc", "status"),
        "codline run": ("codline", "run"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            seconds[name].append(timed(partial(project.must, *command)))
    medians = {name: statistics.median(times[1:] or times) for name, times in seconds.items()}
    return [Measurement("nothing to do", name, median) for name, median in medians.items()]


def measurements(cycles: int, rounds: int) -> Iterator[list[Measurement]]:
    with TemporaryDirectory(prefix="codline-benchmark-") as directory:
        functions = run_in_subprocess(seconds_as_functions, directory, cycles).answer
    queries = [f"c{number}" for number in range(1, cycles)]
    steady = queries[1:] or queries  # the first cycle waits for imports
    with finished_campaign(cycles, CODLINE_TRACKING="off") as project:
        plain = median_cycle(project, steady)
    with finished_campaign(cycles) as project:
        tracked = median_cycle(project, steady)
        yield cycle_rows(functions, plain, tracked)
        yield stage_rows(functions, tracked)
        yield command_rows(project, rounds)
        yield rerun_rows(project, cycles)


def rerun_rows(project: Project, cycles: int) -> list[Measurement]:
    """All stages again, by `codline run` (with another seed) and by `dvc repro --force`."""
    run = timed(partial(project.must, "codline", "run", "--seed", "1"))
    repro = timed(partial(project.must, "dvc", "repro", "--force"))
    case = f"a campaign of {cycles} cycles"
    return [Measurement(case, "codline run", run), Measurement(case, "dvc repro --force", repro, repro / run)]


def main(words: list[str] | None = None) -> None:
    arguments = argument_parser(__doc__, rounds=3).parse_args(words)
    cycles, rounds = (2, 0) if arguments.quick else (4, arguments.rounds)
    report_each(TITLE, measurements(cycles, rounds), arguments.json)


if __name__ == "__main__":
    main()
