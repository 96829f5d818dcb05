"""The processes of a study: workers that run points (stages/study_worker.py), and one that logs them to MLflow."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core.errors import BY_EXIT_CODE, CodlineError, InfrastructureError, PoolUsedUp
from codline.core.files import write_json
from codline.core.locks import KeyLocks
from codline.orchestration import worktrees
from codline.orchestration.dependency_hashes import DependencyHashes
from codline.orchestration.inputs import link_inputs
from codline.orchestration.params_file import end_campaign_at
from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_plan import StudyPlan
from codline.runtime import out_of_memory, state_directory
from codline.runtime.background import FOLLOWER_SECONDS, LOG, is_tracking
from codline.runtime.gpu_lock import visible_gpus
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import OWNER
from codline.runtime.recorded_outputs import CAMPAIGN

ATTEMPTS = 3  # to run a point whose worker is killed
SECONDS_PER_POINT = 2.0  # that MLflow may take, at the end of a study, for each point that it has not been sent
# Environment variables that a worker must not inherit.
OF_THIS_PROCESS = ("CODLINE_STATE_DIRECTORY", "CODLINE_TIMEOUT", "CODLINE_QUIET", "DVC_STAGE", CAMPAIGN)


def worker_count(plan: StudyPlan, jobs: int) -> int:
    """At most one worker per GPU: each holds one until it ends."""
    compute = [YAML(typ="safe").load(point.params).get("compute") or {} for point in plan.unfinished]
    uses_gpu = any(section.get("device", "auto") in ("auto", "cuda") for section in compute)
    return min(jobs, len(visible_gpus()) or jobs) if uses_gpu else jobs


class BusyPoint(Exception):  # noqa: N818 (not an error: it waits for another one)
    """Another worker is computing a stage that the point needs; `key` is that of its lock."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StudyRunner:
    """Runs points of a study in worker processes."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan, self.cache = plan, worktrees.dvc_cache_directory()
        self.code = plan.folder / "code"  # a worktree with the code that all workers run
        self.lock_file = state_directory.state_root().resolve() / "stages.lock"
        self.locks = KeyLocks(self.lock_file)
        worktrees.prepare_worktree(self.code, plan.commit, plan.points[0].params, self.cache)
        self.hashes = DependencyHashes(self.code)
        self.stages = Pipeline(self.code).stages
        self.requests: dict[str, dict[str, Any]] = {}  # of the points that are prepared
        self.processes: set[subprocess.Popen[str]] = set()
        self.process_lock, self.is_stopped = threading.Lock(), False

    def prepare(self, point: StudyPoint) -> None:
        """Create or update the worktree of a point, if that has not been done yet."""
        if point.name in self.requests:
            return
        worktree = self.plan.worktree(point)
        worktrees.prepare_worktree(worktree, self.plan.commit, point.params, self.cache)
        self.plan.logged_note(point).unlink(missing_ok=True)
        pipeline = Pipeline(worktree)
        pipeline.stages, pipeline.params = self.stages, YAML(typ="safe").load(point.params)
        link_inputs(pipeline.params, self.code)
        log = self.plan.folder / f"{point.name}.log"
        log.write_bytes(b"")
        self.requests[point.name] = {
            "directory": str(worktree.resolve()),
            "log": str(log.resolve()),
            "dependencies": self.hashes.of_point(pipeline),
            "compute": pipeline.params.get("compute"),
        }

    def start_process(self) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key not in OF_THIS_PROCESS}
        with self.process_lock:
            if self.is_stopped:
                raise InfrastructureError("the study was stopped")
            process = subprocess.Popen(
                [sys.executable, "-m", "stages.study_worker"],
                cwd=self.code,  # from which it imports its code
                env=environment | {OWNER: str(os.getpid())},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self.processes.add(process)
        send(process, {"cache": str(self.cache), "locks": str(self.lock_file)})
        return process

    def stop(self) -> None:
        with self.process_lock:
            self.is_stopped = True
            for process in list(self.processes):
                end(process)


class Worker:
    """One process at a time. It is replaced if it dies, or for a point with another section `compute`.

    torch reads some of these settings once.
    """

    def __init__(self, runner: StudyRunner) -> None:
        self.runner, self.compute = runner, ""
        self.process: subprocess.Popen[str] | None = None

    def run(self, point: StudyPoint) -> None:
        """Run a point and write its record; raises BusyPoint, or the error with which it failed."""
        plan, request, started = self.runner.plan, self.runner.requests[point.name], time.monotonic()
        answer = self.answer(request, point)
        if answer.get("exit_code") == PoolUsedUp.exit_code:  # the cycle becomes the last one, as in `codline run`
            end_campaign_at(answer["stage"].partition("@")[2], plan.worktree(point) / "params.yaml")
            answer = self.answer(request, point)
        if "busy" in answer:
            raise BusyPoint(answer["busy"])
        if "sentence" in answer:
            error = BY_EXIT_CODE.get(answer["exit_code"], CodlineError)
            raise error(f"{point.title}: {answer['sentence']}")
        record = {
            "digest": plan.digest(point),
            "arm": point.arm,
            "seed": point.seed,
            "curve": answer["curve"],
            "seconds": time.monotonic() - started,
        }
        write_json(plan.record_file(point), record)

    def answer(self, request: dict[str, Any], point: StudyPoint) -> dict[str, Any]:
        compute = json.dumps(request["compute"], sort_keys=True)
        if compute != self.compute:
            self.end()
            self.compute = compute
        for _ in range(ATTEMPTS):
            kernel_kills = out_of_memory.kernel_kills()
            if self.process is None:
                self.process = self.runner.start_process()
            assert self.process.stdout is not None
            with contextlib.suppress(OSError):  # it was killed
                send(self.process, request)
                if line := self.process.stdout.readline():
                    answer: dict[str, Any] = json.loads(line)
                    return answer
            code = self.process.wait()
            self.end()
            if out_of_memory.kernel_kills() > kernel_kills:
                sentence = "out of memory, so the kernel killed its process; free some memory, or lower --jobs"
                raise CodlineError(f"{point.title}: {sentence}")
        raise InfrastructureError(f"{point.title}: it was killed or broke off ({code}); see {request['log']}")

    def end(self) -> None:
        if self.process is not None:
            end(self.process)
            self.runner.processes.discard(self.process)
        self.process = None


def end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError), process:  # OSError: its pipe has what it could not be sent any more
        process.kill()


def send(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


class PointLogger:
    """The process that logs finished points to MLflow, started with the first of them."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan, self.sent = plan, 0
        self.process: subprocess.Popen[str] | None = None

    def log(self, point: StudyPoint) -> None:
        if not is_tracking():
            return
        if self.process is None:
            self.start()
        assert self.process is not None
        tags = {f"codline.study.{self.plan.study.name}": point.arm, "codline.seed": str(point.seed)}
        with contextlib.suppress(OSError):  # it has ended; the log tells why
            send(self.process, {"directory": str(self.plan.worktree(point).resolve()), "tags": tags})
        self.sent += 1

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "CODLINE_STATE_DIRECTORY"}
        lock = str((state_directory.state_root() / "tracking.lock").resolve())
        environment |= {"MLFLOW_TRACKING_URI": absolute_tracking_uri(), "CODLINE_TRACKING_LOCK": lock}
        with self.log_file.open("wb") as log:
            command = [sys.executable, "-m", "codline.tracking", "points"]
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )

    @property
    def log_file(self) -> Path:
        return self.plan.folder / LOG

    def finish(self) -> str:
        """Wait until all points are logged; returns a sentence about those that are not."""
        if self.process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=FOLLOWER_SECONDS + SECONDS_PER_POINT * self.sent)
        if self.process.poll() is None:
            self.stop()
            return "MLflow took too long; run the study again to log the rest"
        return self.log_file.read_text(encoding="utf-8", errors="replace").strip()

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)


def absolute_tracking_uri() -> str:
    """MLflow's address, valid in every directory."""
    address = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    kind, _, path = address.partition(":///")
    return f"{kind}:///{Path(path).resolve()}" if kind == "sqlite" else address
