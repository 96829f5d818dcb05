"""The flow of a study: runs its points in parallel, each a campaign in a git worktree of its own."""

import contextlib
import queue

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from pydantic import PositiveInt

from codline.core.errors import CodlineError, InfrastructureError
from codline.orchestration import worktrees
from codline.orchestration.prefect_runs import recorded_run, rename_flow_run
from codline.orchestration.study_grid import Overrides, StudyPoint
from codline.orchestration.study_plan import StudyPlan, lock_study, plan_study, write_results
from codline.orchestration.study_process import create_mlflow_database, run_point_campaign, terminate_workers

POLL_SECONDS = 0.3  # how often it is checked whether another point can start
Ended = queue.SimpleQueue[
    tuple[StudyPoint, CodlineError | None]
]  # points that have ended, with the error if they failed


@flow(name="study", flow_run_name="{name}", persist_result=False)
def study(name: str, overrides: Overrides | None = None, jobs: PositiveInt = 1) -> None:
    """Run the points that are not done yet, `jobs` at a time. A point that fails does not stop the others."""
    plan = plan_study(name, overrides)
    with lock_study(plan), recorded_run(f"study-{plan.study.name}"):
        rename_flow_run(plan.study.name)
        create_mlflow_database()
        failures = run_points(plan, jobs)
        write_results(plan, draw=True)
    if failures:
        others = f"; {len(failures) - 1} more points failed" if len(failures) > 1 else ""
        done = f"{len(plan.points) - len(failures)} of {len(plan.points)} points are done, run it again to go on"
        raise type(failures[0])(f"{failures[0]}{others}; {done}")


def run_points(plan: StudyPlan, jobs: int) -> list[CodlineError]:
    """Run the unfinished points, at most `jobs` at a time, and return the errors of those that failed."""
    plan.states = {point.name: "waiting" if point in plan.unfinished else "done" for point in plan.points}
    waiting, running = list(plan.unfinished), dict[str, StudyPoint]()
    ended: Ended = queue.SimpleQueue()
    failures, cache, results_outdated = list[CodlineError](), worktrees.dvc_cache_directory(), True
    try:
        while waiting or running:
            while len(running) < jobs and (point := next_point(plan, waiting, running)):
                waiting.remove(point)
                worktrees.prepare_worktree(plan.worktree(point), plan.commit, point.params, cache)
                running[point.name] = point
                plan.set_state(point, "running")
                run_point.with_options(task_run_name=plan.title(point)).submit(plan, point, ended)
            if results_outdated:
                write_results(plan)  # takes seconds, so only after the next point has been started
                results_outdated = False
            with contextlib.suppress(queue.Empty):
                point, failure = ended.get(timeout=POLL_SECONDS)
                del running[point.name]
                plan.set_state(point, "failed" if failure else "done")
                failures += [failure] if failure else []
                results_outdated = True
    finally:
        terminate_workers()
    return failures


def next_point(plan: StudyPlan, waiting: list[StudyPoint], running: dict[str, StudyPoint]) -> StudyPoint | None:
    """The first waiting point none of whose stages is being computed by a running point.

    Points can share prepare and the first training: a point that starts later takes them from DVC's run cache.
    """

    def shares_unfinished_stage(point: StudyPoint, other: StudyPoint) -> bool:
        theirs = plan.shared_stages[other.name]
        return any(
            theirs.get(stage) == key and not worktrees.has_finished(plan.worktree(other), stage)
            for stage, key in plan.shared_stages[point.name].items()
        )

    free = (p for p in waiting if not any(shares_unfinished_stage(p, other) for other in running.values()))
    return next(free, None)


@task(name="point", cache_policy=NO_CACHE, persist_result=False)
def run_point(plan: StudyPlan, point: StudyPoint, ended: Ended) -> None:
    """Run the campaign of one point, and always report its end to the scheduling loop."""
    failure: CodlineError | None = InfrastructureError(f"{point.title}: it was stopped")
    try:
        run_point_campaign(plan, point)
        failure = None
    except CodlineError as error:
        failure = error
        raise
    finally:
        ended.put((point, failure))
