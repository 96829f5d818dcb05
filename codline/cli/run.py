"""`codline run`: one campaign."""

import time
from typing import Annotated

import typer

from codline.cli import display, environment
from codline.cli.options import Engine, Set, parse_overrides
from codline.cli.prefect_session import prefect_session
from codline.core.errors import WaitingForPeople
from codline.engine.setting import choose_engine
from codline.orchestration.params_file import params_changes


def run(
    preset: Annotated[
        str | None, typer.Option(help="A preset listed by `codline presets`; the other options override its values.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="A strategy listed by `codline strategies`.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random numbers.")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Number of cycles.")] = None,
    set_: Set = None,
    timeout_minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit of each stage.")] = None,
    engine: Engine = None,
    share: Annotated[
        bool,
        typer.Option("--share", help="Take results from the DVC remote if it has them, and send it the others."),
    ] = False,
) -> None:
    """Run the campaign in params.yaml. Stages that are up to date are skipped."""
    environment.silence_stages()
    choose_engine(engine)
    changes = params_changes(strategy, seed, cycles, parse_overrides(set_))
    from codline.orchestration.answers import check_answers
    from codline.orchestration.dvc_stages import stale_stages
    from codline.orchestration.refused_params import campaign_params
    from codline.orchestration.workspace import open_workspace

    with open_workspace(share) as workspace, campaign_params(workspace, changes, preset):
        check_answers()
        if not share and not stale_stages():
            display.print_learning_curve()
            display.print_outcome("Everything is up to date.")
            return
        started = time.monotonic()
        waiting = run_campaign(timeout_minutes)
    display.print_learning_curve()
    if waiting:
        raise WaitingForPeople(waiting)
    display.print_outcome(f"Done in {time.monotonic() - started:.0f} s.")


def run_campaign(timeout_minutes: float | None) -> str | None:
    """What people have to do before the campaign can go on; nothing if it is complete."""
    from flows import tasks
    from flows.campaign import campaign

    with display.CampaignProgress("starting Prefect") as progress, prefect_session():
        tasks.listeners.append(progress.on_stage_event)
        state = campaign(timeout_minutes=timeout_minutes, return_state=True)
        state.result()  # raises if it has failed
        return state.message if tasks.is_waiting(state) else None
