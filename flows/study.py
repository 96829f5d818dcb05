"""The flow of a study: runs its points, each a campaign, in worker processes here or on the machines of a work pool."""

import queue
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from pydantic import PositiveInt

from codline.core.errors import CodlineError, InfrastructureError
from codline.orchestration.prefect_runs import recorded_run, rename_flow_run
from codline.orchestration.study_grid import Overrides, StudyPoint
from codline.orchestration.study_plan import StudyPlan, lock_study, plan_study, write_results
from codline.orchestration.study_pool import PoolWorker
from codline.orchestration.study_queue import StudyQueue
from codline.orchestration.study_workers import BusyPoint, PointLogger, StudyRunner, Worker, worker_count
from codline.orchestration.work_pool import require_worker
from flows.deployments import deploy_to_pool

POLL_SECONDS = 0.3  # how often it is checked whether another point can start
RESULTS_SHARE = 20  # results are written again after this many times the seconds that it takes
Ended = queue.SimpleQueue[tuple[Worker | PoolWorker, StudyPoint, Exception | None]]  # points that workers have left


@flow(name="study", flow_run_name="{name}", persist_result=False)
def study(name: str, overrides: Overrides | None = None, jobs: PositiveInt = 1, pool: str | None = None) -> None:
    """Run the points that are not done yet, `jobs` at a time. A point that fails does not stop the others.

    `pool`: a Prefect work pool whose workers run them.
    """
    plan = plan_study(name, overrides)
    with lock_study(plan), recorded_run(f"study-{plan.study.name}"):
        rename_flow_run(plan.study.name)
        failures = StudySchedule(plan, jobs, pool).run()
        write_results(plan, draw=True)
    if failures:
        others = f"; {len(failures) - 1} more points failed" if len(failures) > 1 else ""
        done = f"{len(plan.points) - len(failures)} of {len(plan.points)} points are done, run it again to go on"
        raise type(failures[0])(f"{failures[0]}{others}; {done}")


def start_workers(plan: StudyPlan, runner: StudyRunner, jobs: int, pool: str | None) -> list[Worker | PoolWorker]:
    if pool is None:
        return [Worker(runner) for _ in range(worker_count(plan, jobs))]
    deployment, restorer, lock = deploy_to_pool(pool), Worker(runner), threading.Lock()
    require_worker(pool)
    return [PoolWorker(plan, deployment, pool, restorer, lock) for _ in range(min(jobs, len(plan.points)))]


def by_arm(plan: StudyPlan) -> list[StudyPoint]:
    """The unfinished points, one arm after the other: those of one seed share stages, and machines know of none that is
    being computed elsewhere."""
    arms = list(plan.study.arm_overrides)
    return sorted(plan.unfinished, key=lambda point: arms.index(point.arm))


@task(name="point", cache_policy=NO_CACHE, persist_result=False)
def show_point(outcome: "Future[None]") -> None:
    """A point on Prefect's page: it ends when the point does, and as it does."""
    outcome.result()


class StudySchedule:
    """Which points wait, which run, and which have failed."""

    def __init__(self, plan: StudyPlan, jobs: int, pool: str | None) -> None:
        self.plan, self.runner, self.logger = plan, StudyRunner(plan), PointLogger(plan)
        points = by_arm(plan) if pool else plan.unfinished
        self.queue, self.running = StudyQueue(points, self.runner.locks.is_free), list[StudyPoint]()
        self.idle: list[Worker | PoolWorker] = [*start_workers(plan, self.runner, jobs, pool)]
        self.outcomes = dict[StudyPoint, Future[None]]()  # of the points that have been started
        self.failures = list[CodlineError]()
        self.ended: Ended = queue.SimpleQueue()
        self.threads = ThreadPoolExecutor(len(self.idle) + 1)
        self.results: Future[None] | None = None  # being written
        self.results_due = 0.0

    def run(self) -> list[CodlineError]:
        """Run the unfinished points; returns the errors of those that failed."""
        plan = self.plan
        plan.states = {point.name: "waiting" if point in self.queue.waiting else "done" for point in plan.points}
        for unlogged in plan.unlogged:
            self.logger.log(unlogged)
        try:
            while self.queue.waiting or self.running:
                while self.idle and (point := self.queue.take()):
                    self.start(point)
                self.update_results()
                if not self.prepare_ahead():
                    with suppress(queue.Empty):
                        self.end(*self.ended.get(timeout=POLL_SECONDS))
            if message := self.logger.finish():
                sys.stderr.write(f"codline: {message}\n")
        finally:
            self.stop()
        return self.failures

    def start(self, point: StudyPoint) -> None:
        self.running.append(point)
        self.runner.prepare(point)
        self.plan.set_state(point, "running")
        if point not in self.outcomes:
            self.outcomes[point] = Future()
            show_point.with_options(task_run_name=self.plan.title(point)).submit(self.outcomes[point])
        self.threads.submit(self.run_point, self.idle.pop(), point)

    def run_point(self, worker: Worker | PoolWorker, point: StudyPoint) -> None:
        try:
            worker.run(point)
            self.ended.put((worker, point, None))
        except Exception as error:
            self.ended.put((worker, point, error))

    def end(self, worker: Worker | PoolWorker, point: StudyPoint, error: Exception | None) -> None:
        self.idle.append(worker)
        self.running.remove(point)
        if isinstance(error, BusyPoint):
            self.queue.put_back(point, error.key)
            self.plan.set_state(point, "waiting")
        elif isinstance(error, CodlineError):
            self.failures.append(error)
            self.plan.set_state(point, "failed")
            self.outcomes[point].set_exception(error)
        elif error is not None:
            raise error
        else:
            self.plan.set_state(point, "done")
            self.outcomes[point].set_result(None)
            self.logger.log(point)

    def prepare_ahead(self) -> bool:
        """Prepare a point that will be started soon; False if that has been done, or something has ended."""
        unprepared = (p for p in self.queue.waiting[: 2 * len(self.running)] if p.name not in self.runner.requests)
        point = next(unprepared, None) if self.ended.empty() else None
        if point is not None:
            self.runner.prepare(point)
        return point is not None

    def update_results(self) -> None:
        """Write the results so far, in another thread: it takes seconds."""
        if self.results is not None and not self.results.done():
            return
        if time.monotonic() > self.results_due:
            self.results = self.threads.submit(self.write_results)

    def write_results(self) -> None:
        started = time.monotonic()
        with suppress(CodlineError):  # the last time, its error is reported
            write_results(self.plan)
        self.results_due = time.monotonic() + RESULTS_SHARE * (time.monotonic() - started)

    def stop(self) -> None:
        for point, outcome in self.outcomes.items():  # Prefect waits for its tasks
            if not outcome.done():
                outcome.set_exception(InfrastructureError(f"{point.title}: it was stopped"))
        self.runner.stop()
        self.logger.stop()
        self.threads.shutdown()
