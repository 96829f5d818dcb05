"""What Prefect, DVC, MLflow and processes cost in a cycle, against the same stages called as functions: python -m benchmarks.orchestration"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import contextlib
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.campaigns import without_progress_bars
from benchmarks.harness import Measurement, run_in_subprocess, argument_parser, report_each
from codline.core import params
from tests.project import Project, clone_with_small_campaign, free_port
from tests.workspace import create_workspace

ORDER = ("train", "score", "select", "annotate", "merge", "evaluate", "diagnose")
ARGUMENTS = ("-S", "train.epochs=5")


@dataclass(frozen=True)
class CycleSeconds:
    """Seconds of one cycle that asks for labels."""

    all: float
    tasks: dict[str, float]  # {stage: from the start of its task to the end}, of which some run beside others
    inside: dict[str, float]  # {stage: by its own clock, in its own process}


def functions(folder: str, cycles: int) -> dict[str, float]:
    """{stage of the last asking cycle: seconds}, in one process that has imported everything: the first cycle did."""
    found = {}
    with contextlib.chdir(folder), without_progress_bars():
        workspace = create_workspace(Path(folder))
        workspace.change(**{"train.epochs": 5} | params.cycle_chain(cycles))
        workspace.run("prepare")
        for cycle in workspace.pipeline.queries:
            found = {stage: timed(lambda stage=stage, cycle=cycle: workspace.run(stage, cycle)) for stage in ORDER}  # type: ignore[misc]
    return found


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def typical(project: Project, cycles: list[str]) -> CycleSeconds:
    """The medians of these."""
    each = [recorded(project, cycle) for cycle in cycles]
    middle = statistics.median
    tasks, inside = (
        {stage: middle(getattr(one, what)[stage] for one in each) for stage in ORDER} for what in ("tasks", "inside")
    )
    return CycleSeconds(middle(one.all for one in each), tasks, inside)


def recorded(project: Project, cycle: str) -> CycleSeconds:
    """From Prefect's own records, and the stages' notes."""
    home = Path(project.environment.get("PREFECT_HOME") or project.root / ".prefect")
    with contextlib.closing(sqlite3.connect(home / "prefect.db")) as database:
        tasks = database.execute(
            "select name, start_time, end_time from task_run where name like ? order by start_time", (f"%@{cycle}",)
        ).fetchall()
        flows = database.execute(
            "select start_time, end_time from flow_run where name = ? order by start_time", (cycle,)
        ).fetchall()
    spent = {name.partition("@")[0]: lasted(began, ended) for name, began, ended in tasks}
    notes = {
        stage: json.loads((project.root / ".codline" / "seconds" / f"{stage}@{cycle}.json").read_text())["seconds"]
        for stage in ORDER
    }
    return CycleSeconds(lasted(*flows[-1]), spent, notes)


def lasted(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


@contextlib.contextmanager
def campaign(cycles: int, **environment: str) -> Iterator[Project]:
    """A clone of this project with a small campaign in it."""
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        (Path(folder) / "clone").mkdir()
        project = clone_with_small_campaign(Path(folder) / "clone", PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api", **environment)
        project.must("codline", "setup")
        project.must("codline", "run", *ARGUMENTS, "--cycles", str(cycles))
        yield project


def stage_rows(bare: dict[str, float], cycle: CycleSeconds) -> list[Measurement]:
    """Per stage: as a function, in its process, as a task that DVC runs."""
    rows = []
    for stage in ORDER:
        case = f"stage {stage}"
        rows.append(Measurement(case, "as a function", bare[stage]))
        rows.append(
            Measurement(
                case,
                "in a process of its own, by its own clock",
                cycle.inside[stage],
                cycle.inside[stage] / bare[stage],
            )
        )
        rows.append(
            Measurement(case, "as Prefect's task, through DVC", cycle.tasks[stage], cycle.tasks[stage] / bare[stage])
        )
    return rows


def cycle_rows(bare: dict[str, float], plain: CycleSeconds, full: CycleSeconds) -> list[Measurement]:
    least, case = sum(bare.values()), "a cycle of seven stages"
    contenders = {"functions in one process": least, "codline run, without MLflow": plain.all, "codline run": full.all}
    notes = {
        "codline run, without MLflow": f"Prefect, DVC, processes: {plain.all - least:.1f} s",
        "codline run": f"all: {full.all - least:.1f} s",
    }
    return [
        Measurement(case, name, seconds, seconds / least, note=notes.get(name, "")) for name, seconds in contenders.items()
    ]


def waiting(project: Project, rounds: int) -> list[Measurement]:
    """Commands on a campaign that is up to date."""
    commands = {
        "codline status": ("codline", "status"),
        "dvc status": ("dvc", "status"),
        "codline run, all done (warm make demo)": ("codline", "run"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, words in commands.items():
            seconds[name].append(timed(lambda words=words: project.must(*words)))  # type: ignore[misc]
    return [Measurement("nothing to do", name, statistics.median(times[1:] or times)) for name, times in seconds.items()]


def parts(cycles: int, rounds: int) -> Iterator[list[Measurement]]:
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        bare = run_in_subprocess(functions, folder, cycles).answer
    asking = [f"c{number}" for number in range(1, cycles)]
    steady = asking[1:] or asking  # the first one waits for what the later ones find ready
    with campaign(cycles, CODLINE_TRACKING="off") as project:
        plain = typical(project, steady)
    with campaign(cycles) as project:
        full = typical(project, steady)
        yield cycle_rows(bare, plain, full)
        yield stage_rows(bare, full)
        yield waiting(project, rounds)


def main(words: list[str] | None = None) -> None:
    asked = argument_parser(__doc__, rounds=3).parse_args(words)
    report_each(
        "Orchestration: seconds on the clock",
        parts(2 if asked.quick else 4, 0 if asked.quick else asked.rounds),
        asked.json,
    )


if __name__ == "__main__":
    main()
