"""Points of a study that run on the machines of a work pool: one flow run each, whose results come back through DVC.

The files of a point are restored here by a worker of the study, as if another study had computed its stages. So its
dvc.lock, its place in table and figure and its run in MLflow are those of a study that runs here.
"""

import re
import threading
import time
from itertools import count
from uuid import UUID

from dvc.repo import Repo
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.objects import FlowRun

from codline.core.errors import BY_EXIT_CODE, CodlineError, DataError, InfrastructureError
from codline.orchestration.artifacts import FENCE, LOCK_KEY
from codline.orchestration.remote_results import RemoteResults
from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_plan import AT_POOL, StudyPlan
from codline.orchestration.study_workers import Worker
from codline.orchestration.work_pool import has_worker, no_worker
from codline.orchestration.worker_clone import add_past_runs

POLL_SECONDS = 3.0
LOST_SECONDS = 300.0  # that a study waits for a worker to come back, or for a run that has crashed to be started again
BY_NAME = {kind.__name__: kind for kind in BY_EXIT_CODE.values()}
ERROR = re.compile(rf"\b({'|'.join(BY_NAME)}): (.*)", re.DOTALL)  # in the message of a state that has failed


class PoolWorker:
    """Has one point at a time run by the pool. All of a study share the worker that restores what has been computed."""

    def __init__(self, plan: StudyPlan, deployment: UUID, pool: str, restorer: Worker, lock: threading.Lock) -> None:
        self.plan, self.deployment, self.pool = plan, deployment, pool
        self.restorer, self.lock = restorer, lock

    def run(self, point: StudyPoint) -> None:
        """Wait for the flow run of the point, get its results and write its record; raises the error it ended with."""
        with get_client(sync_client=True) as client:
            run = self.wait(client, point, self.submit(client, point))
            lock_text = published_lock(client, run, point)
        with self.lock:
            self.fetch(lock_text)
            self.restorer.run(point)

    def submit(self, client: SyncPrefectClient, point: StudyPoint) -> FlowRun:
        """The flow run of this point: one that an earlier study has started, unless it failed, or a new one."""
        for attempt in count():
            run = client.create_flow_run_from_deployment(
                self.deployment,
                parameters={"params": point.params},
                name=self.plan.title(point),
                idempotency_key=f"{self.pool}-{self.plan.digest(point)}-{attempt}",
                job_variables={"env": {"CODLINE_TRACKING": "off"}},  # the study logs it, once it is here
            )
            if run.state is None or not run.state.is_final() or run.state.is_completed():
                break
        return run

    def wait(self, client: SyncPrefectClient, point: StudyPoint, run: FlowRun) -> FlowRun:
        last_sign, shown = time.monotonic(), ""
        while not has_ended(run):
            if shown != (shown := run.state_name or ""):
                self.plan.set_state(point, f"{shown.lower()}{AT_POOL}{self.pool}")
            if not (is_polled := has_worker(client, self.pool)) or is_crashed(run):
                if time.monotonic() > last_sign + LOST_SECONDS:
                    raise run_error(point, run) if is_polled else InfrastructureError(no_worker(self.pool))
            else:
                last_sign = time.monotonic()
            time.sleep(POLL_SECONDS)
            run = client.read_flow_run(run.id)
        if not is_completed(run):
            raise run_error(point, run)
        return run

    def fetch(self, lock_text: str) -> None:
        """Get what the dvc.lock of a point names into DVC's cache."""
        with Repo() as repo:
            remote = RemoteResults(repo)
            remote.fetch_objects(add_past_runs(lock_text, remote.runs))


def has_ended(run: FlowRun) -> bool:
    """A run that has crashed is started again by Prefect's server (work_pool.py), unless it had not even started."""
    return run.state is not None and run.state.is_final() and not (is_crashed(run) and run.run_count)


def is_crashed(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_crashed()


def is_completed(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_completed()


def run_error(point: StudyPoint, run: FlowRun) -> CodlineError:
    """The error with which the flow run has ended, from the message of its state."""
    message = (run.state and run.state.message) or run.state_name or ""
    found = ERROR.search(message)
    if found:
        return BY_NAME[found[1]](f"{point.title}: {found[2]}")
    return InfrastructureError(f"{point.title}: {message}; see the flow run {run.name} on Prefect's page")


def published_lock(client: SyncPrefectClient, run: FlowRun, point: StudyPoint) -> str:
    """The dvc.lock that the flow run has published."""
    of_run = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]), key=ArtifactFilterKey(like_=f"%{LOCK_KEY}")
    )
    artifacts = client.read_artifacts(artifact_filter=of_run, limit=1)
    if not artifacts:
        raise DataError(f"{point.title}: its flow run {run.id} has published no dvc.lock; delete it and run this again")
    start, end = FENCE
    return str(artifacts[0].data).removeprefix(start).removesuffix(end)
