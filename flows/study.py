"""The flow over a study's points: each a campaign in a worktree of its own, in parallel; what points share is computed once."""

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from pydantic import PositiveInt
from ruamel.yaml import YAML

from codline.core.errors import BY_EXIT_CODE, BusyError, CodlineError, InfrastructureError, UserError
from codline.core.files import read_json, write_json
from codline.orchestration import fork_server_client, prefect_runs, prefect_server, study_grid, worktrees
from codline.orchestration.study_grid import Overrides, Point, Study
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import OWNER

LOOK = 0.3  # seconds between two looks at how far the others are
Listener = Callable[[Point, str], None]
listeners: list[Listener] = []  # told (point, "running" | "done" | "failed")


@dataclass
class Plan:
    """A study of the committed code, with what is known of its points."""

    study: Study
    points: list[Point]
    commit: str
    code: str
    states: dict[str, str] = field(default_factory=dict)  # {point: waiting, running, done or failed}

    @property
    def folder(self) -> Path:
        return state_directory.root() / "studies" / self.study.name

    def tree(self, point: Point) -> Path:
        return self.folder / point.name

    def digest(self, point: Point) -> str:
        return hashlib.sha256((self.code + point.params).encode()).hexdigest()

    def record(self, point: Point) -> dict[str, Any] | None:
        """What a finished point left, if it is this point: of the same code and params."""
        path = self.folder / f"{point.name}.json"
        found: dict[str, Any] | None = read_json(path) if path.exists() else None
        return found if found is not None and found["digest"] == self.digest(point) else None

    @cached_property
    def waiting(self) -> list[Point]:
        return [point for point in self.points if self.record(point) is None]

    @cached_property
    def shared(self) -> dict[str, dict[str, str]]:
        stages = Pipeline().stages
        return {point.name: study_grid.shared(point, stages) for point in self.points}

    def tell(self, point: Point, state: str) -> None:
        self.states[point.name] = state
        write_json(self.folder / "states.json", self.states)
        for listener in listeners:
            listener(point, state)


def planned(name: str, overrides: Overrides | None = None) -> Plan:
    """The whole study, checked before anything runs."""
    study = study_grid.read(study_grid.found(name))
    worktrees.refuse_changes()
    points = study_grid.points(study, worktrees.committed("params.yaml"), overrides or {})
    plan = Plan(study, points, worktrees.head(), worktrees.code())
    checked(plan)
    return plan


def checked(plan: Plan) -> None:
    """Have the stages check the params of every arm, in one process of their own."""
    first = {point.arm: point for point in reversed(plan.points)}
    facts = {"digest": hashlib.sha256("".join(plan.digest(point) for point in first.values()).encode()).hexdigest()}
    if state_directory.read_note("checked", f"study-{plan.study.name}") == facts:
        return
    paths = []
    for arm, point in first.items():
        paths.append(plan.folder / "checked" / f"arm {arm.replace('/', ' ')}.yaml")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_text(point.params, encoding="utf-8")
    fork_server_client.up()
    done = subprocess.run(
        [sys.executable, "-m", "stages", *map(str, paths)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BY_EXIT_CODE.get(done.returncode, CodlineError)(
            f"study {plan.study.name}: {last_words(done.stderr) or 'its params could not be checked'}"
        )
    state_directory.note("checked", f"study-{plan.study.name}", facts)


def last_words(said: str) -> str:
    """The one sentence of a process that refused."""
    return next(
        (line.removeprefix("codline: ") for line in reversed(said.splitlines()) if line.startswith("codline: ")), ""
    )


@flow(name="study", flow_run_name="{name}", persist_result=False)
def study(name: str, overrides: Overrides | None = None, jobs: PositiveInt = 1) -> None:
    """Run the points that are not done, `jobs` at a time. A point that fails does not stop the others."""
    plan = planned(name, overrides)
    with held(plan), prefect_runs.recorded(f"study-{plan.study.name}"):
        tracked()
        failures = work(plan, jobs)
        summarise(plan, drawing=True)
    if failures:
        rest = f"; {len(failures) - 1} more points failed" if len(failures) > 1 else ""
        raise type(failures[0])(
            f"{failures[0]}{rest}; {len(plan.points) - len(failures)} of {len(plan.points)} points are done, run it again to go on"
        )


@contextlib.contextmanager
def held(plan: Plan) -> Iterator[None]:
    """One process at a time runs a study; the kernel lets go when it dies. Its points fork their stages from one process."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    with (plan.folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"study {plan.study.name} is running already; wait for it or stop it") from error
        if plan.waiting:
            fork_server_client.up()
        try:
            yield
        finally:
            fork_server_client.down()


def work(plan: Plan, jobs: int) -> list[CodlineError]:
    """Start points as places become free; say which failed."""
    plan.states = {point.name: "waiting" if point in plan.waiting else "done" for point in plan.points}
    waiting, running = list(plan.waiting), dict[str, Point]()
    ended: queue.SimpleQueue[tuple[Point, CodlineError | None]] = queue.SimpleQueue()
    failures, cache, fresh = [], worktrees.cache(), True
    try:
        while waiting or running:
            while len(running) < jobs and (
                point := next((point for point in waiting if alone(plan, point, running)), None)
            ):
                waiting.remove(point)
                worktrees.made(plan.tree(point), plan.commit, point.params, cache)
                running[point.name] = point
                plan.tell(point, "running")
                campaign.with_options(task_run_name=point.name).submit(plan, point, ended)
            if fresh:
                summarise(plan)  # takes seconds: once the free place is taken
                fresh = False
            with contextlib.suppress(queue.Empty):
                point, failure = ended.get(timeout=LOOK)
                del running[point.name]
                plan.tell(point, "failed" if failure else "done")
                failures += [failure] if failure else []
                fresh = True
    finally:
        for process in list(_processes):
            process.terminate()
    return failures


def alone(plan: Plan, point: Point, running: dict[str, Point]) -> bool:
    """Is no running point about to make what this one needs, too? Then it waits, and DVC's run cache has it for the asking."""
    mine = plan.shared[point.name]
    return all(
        plan.shared[name].get(stage) != key or has(plan.tree(other), stage)
        for name, other in running.items()
        for stage, key in mine.items()
    )


def has(tree: Path, stage: str) -> bool:
    lock = tree / "dvc.lock"
    return lock.exists() and f"\n  {stage}:\n" in lock.read_text(encoding="utf-8")


_processes: set[subprocess.Popen[bytes]] = set()


@task(name="point", cache_policy=NO_CACHE, persist_result=False)
def campaign(plan: Plan, point: Point, ended: "queue.SimpleQueue[tuple[Point, CodlineError | None]]") -> None:
    failure: CodlineError | None = InfrastructureError(f"{point.title}: it was stopped")
    try:
        run(plan, point)
        failure = None
    except CodlineError as error:
        failure = error
        raise
    finally:
        ended.put((point, failure))


def run(plan: Plan, point: Point) -> None:
    """The campaign of a point, in a process of its own; what it says is in the log beside its worktree."""
    began, log = time.monotonic(), plan.folder / f"{point.name}.log"
    settings = environment(plan, point)
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [sys.executable, "-m", "codline.cli.study_worker"],
            cwd=plan.tree(point),
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        _processes.add(process)
        try:
            code = process.wait()
        finally:
            _processes.discard(process)
    if code:
        sentence = (
            last_words(log.read_text(encoding="utf-8", errors="replace"))
            or f"it was killed or broke off ({code}); see {log}"
        )
        raise BY_EXIT_CODE.get(code, InfrastructureError if code < 0 else CodlineError)(f"{point.title}: {sentence}")
    if (
        settings.get("CODLINE_TRACKING") != "off"
    ):  # a campaign that DVC's run cache had in store ran no stage that would have told MLflow
        subprocess.run(
            [sys.executable, "-m", "codline.tracking", "sync"],
            cwd=plan.tree(point),
            env=settings,
            capture_output=True,
            check=False,
        )
    facts = {
        "digest": plan.digest(point),
        "arm": point.arm,
        "seed": point.seed,
        "curve": curve(plan.tree(point)),
        "seconds": time.monotonic() - began,
    }
    write_json(plan.folder / f"{point.name}.json", facts)


def curve(tree: Path) -> list[dict[str, Any]]:
    pipeline = Pipeline(tree)
    metrics = {cycle: read_json(pipeline.path("evaluate", "metrics", cycle)) for cycle in pipeline.cycles}
    return [
        {"cycle": cycle} | {key: found[key] for key in ("labels", "accuracy", "loss", "mean_iou") if key in found}
        for cycle, found in metrics.items()
    ]


def environment(plan: Plan, point: Point) -> dict[str, str]:
    """A point has its own scratch, and the project's warm process, Prefect server, MLflow and turn at it."""
    own = {key: value for key, value in os.environ.items() if key != "CODLINE_SCRATCH"} | fork_server_client.found_from(
        plan.tree(point)
    )
    device = (YAML(typ="safe", pure=True).load(point.params).get("compute") or {}).get("device")
    limit = {"CODLINE_SLOTS": "off"} if device == "cpu" or prefect_runs.gpus() == 0 else {}
    tags = {f"codline.study.{plan.study.name}": point.arm, "codline.seed": str(point.seed)}
    return (
        own
        | limit
        | {
            OWNER: str(os.getpid()),
            "PREFECT_API_URL": prefect_server.url(),
            "MLFLOW_TRACKING_URI": store(),
            "CODLINE_TRACKING_LOCK": str((state_directory.root() / "tracking.lock").resolve()),
            "CODLINE_TAGS": json.dumps(tags),
        }
    )


def store() -> str:
    """MLflow's address as it is understood from another directory."""
    address = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    kind, _, path = address.partition(":///")
    return f"{kind}:///{Path(path).resolve()}" if kind == "sqlite" else address


def tracked() -> None:
    """Make MLflow's database here, not in the first point's worktree: its files go beside it."""
    if (
        os.environ.get("CODLINE_TRACKING") != "off"
        and not os.environ.get("MLFLOW_TRACKING_URI")
        and not Path("mlflow.db").exists()
    ):
        subprocess.run([sys.executable, "-m", "codline.tracking", "init"], capture_output=True, check=False)


def summarise(plan: Plan, drawing: bool = False) -> None:
    """Write points.json, and have the statistics made of it: flows do no arithmetic."""
    arms = [{"arm": arm, "overrides": own} for arm, own in plan.study.varied.items()]
    records = [(plan.record(point), point) for point in plan.points]
    points = [
        {key: record[key] for key in ("arm", "seed", "curve", "seconds")} | {"params": point.params}
        for record, point in records
        if record
    ]
    facts = {
        "study": plan.study.name,
        "title": plan.study.title,
        "commit": plan.commit,
        "reference": plan.study.compared,
        "seeds": plan.study.seeds,
    }
    write_json(plan.folder / "points.json", facts | {"arms": arms, "points": points})
    words = [sys.executable, "-m", "codline.report.study_figure", str(plan.folder), *(["--draw"] if drawing else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CodlineError(
            f"study {plan.study.name}: its results could not be summarised: {last_words(done.stderr) or done.stderr.strip()[-200:]}"
        )


def usable(jobs: int | None) -> int:
    """As many points at a time as there are processors, and four at most, unless told otherwise: each has torch at work."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs: found {jobs}, expected at least 1")
    return jobs or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
