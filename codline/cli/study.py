"""`codline study`: a grid of campaigns."""

import os
import time
from typing import Annotated

import typer

from codline.cli import display, environment
from codline.cli.options import Engine, Set, parse_overrides
from codline.cli.prefect_session import prefect_session
from codline.engine.setting import choose_engine

POOL_JOBS = 32  # how many points wait or run at a pool at a time; its workers decide how many run
MAX_DEFAULT_JOBS = 4  # each job imports torch, which takes memory


def study(
    name: Annotated[str, typer.Argument(help="Name or path of a study in studies/.")],
    set_: Set = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Campaigns at a time. Default: the number of processors, at most 4."),
    ] = None,
    engine: Engine = None,
    pool: Annotated[
        str | None, typer.Option(help="Prefect work pool whose workers run the campaigns, on other machines.")
    ] = None,
) -> None:
    """Run a study: a grid of campaigns, each in its own git worktree of the committed code. Skips what is done."""
    environment.silence_stages()
    choose_engine(engine)
    from codline.cli import study_progress
    from codline.orchestration import study_plan, worktrees

    overrides = parse_overrides(set_)
    plan = study_plan.plan_study(name, overrides)
    if not worktrees.is_committed("params.yaml"):
        display.print_line("params.yaml has uncommitted changes; the study starts from the committed version.")
    started = time.monotonic()
    total, done = len(plan.points), len(plan.points) - len(plan.unfinished)
    display.print_line(f"{total} points, {done} of them done; worktrees, logs and results are in {plan.folder}.")
    try:
        if plan.unfinished or plan.unlogged:
            from flows.study import study as study_flow

            with study_progress.live_display(plan), prefect_session():
                study_flow(name, overrides, jobs or (POOL_JOBS if pool else default_jobs()), pool)
        else:
            with study_plan.lock_study(plan):
                study_plan.write_results(plan, draw=True)
    finally:
        study_progress.print_results(plan)
    display.print_line(
        f"Done in {time.monotonic() - started:.0f} s. "
        f"Open {plan.folder / 'figure.png'} for the learning curves; results.json and results.csv have the numbers."
    )


def default_jobs() -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_DEFAULT_JOBS, processors)
