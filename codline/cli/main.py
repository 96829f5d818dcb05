"""The codline command."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from codline.cli import environment

environment.prepare()

import typer  # noqa: E402 (prefect, imported below it, reads the environment once)
from ruamel.yaml import YAML  # noqa: E402

from codline.cli import display  # noqa: E402
from codline.core import params  # noqa: E402
from codline.core.errors import AGAIN, BusyError, CodlineError, InfrastructureError, Stopped, UserError  # noqa: E402
from codline.orchestration import presets as presets_  # noqa: E402
from codline.runtime import state_directory  # noqa: E402
from codline.runtime.pipeline import Pipeline  # noqa: E402

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Decide which images are worth labelling.",
)
EXITS = "Exit codes: 0 done, 2 a parameter is wrong, 3 a file is broken, 4 training diverged, 5 the disk is full, 6 something is in use, 7 a stage was killed."
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-S", help="Any value of params.yaml, such as train.epochs=10. May be repeated."),
]


@app.command(epilog=f"Example: codline run --strategy entropy --seed 1 -S train.epochs=10    {EXITS}")
def run(
    preset: Annotated[
        str | None, typer.Option(help="One of those that `codline presets` lists; the other options are laid over it.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="One of those that `codline strategies` lists.")] = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="How many cycles.")] = None,
    set_: Set = None,
    timeout_minutes: Annotated[float | None, typer.Option(help="The most that any one stage may take.")] = None,
) -> None:
    """Run the campaign that params.yaml describes; what is up to date is skipped."""
    # Prefect reads its settings when it is imported, just below. The page still gets every log line.
    os.environ |= {"CODLINE_QUIET": "1", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}
    from codline.orchestration import prefect_server, workspace
    from flows.campaign import changes

    with workspace.held():
        workspace.changed(changes(strategy, seed, cycles, overrides(set_ or [])), preset)
        if not workspace.stale():
            display.table()
            display.farewell("Everything is up to date.")
            return
        started = time.monotonic()
        with display.live() as show, show("starting Prefect"), contextlib.ExitStack() as stack:
            os.environ["PREFECT_API_URL"] = stack.enter_context(prefect_server.local())
            launch(timeout_minutes)
    display.table()
    display.farewell(f"Done in {time.monotonic() - started:.0f} s.")


def launch(timeout_minutes: float | None) -> None:
    from flows import tasks
    from flows.campaign import campaign

    tasks.listeners.append(display.listen)
    with logged():
        campaign(timeout_minutes=timeout_minutes)


@contextlib.contextmanager
def logged() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:  # typer would end with the same code, and without a word
        raise Stopped(AGAIN) from error
    finally:
        for logger in ("prefect.flow_runs", "prefect.task_runs"):  # before the server that takes the lines is stopped
            for handler in logging.getLogger(logger).handlers:
                handler.flush()


def overrides(pairs: list[str]) -> dict[str, Any]:
    """`a.b=value` pairs; values are read as YAML, so 3 is a number and [1, 2] a list."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"-S {pair}: expected key=value, such as train.epochs=10")
        found[key] = YAML(typ="safe", pure=True).load(value)
    return found


@app.command(epilog=f"Example: codline study digits-strategies --jobs 2 -S train.epochs=5    {EXITS}")
def study(
    name: Annotated[str, typer.Argument(help="One of studies/*.yaml, by its name or its file.")],
    set_: Set = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="How many campaigns at a time; as many as processors, at most 4, if not given."),
    ] = None,
) -> None:
    """Run a grid of campaigns, each in a git worktree of its own, from the committed code and params.yaml; what is done is skipped."""
    os.environ |= {"CODLINE_QUIET": "1", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}
    from codline.cli import study_progress
    from codline.orchestration import prefect_server, worktrees
    from flows import study as studies

    changes = overrides(set_ or [])
    plan = studies.planned(name, changes)
    if not worktrees.unchanged("params.yaml"):
        display.say("params.yaml has changes that are not committed; points start from the committed one.")
    started = time.monotonic()
    display.say(
        f"{len(plan.points)} points, {len(plan.points) - len(plan.waiting)} of them done; worktrees, logs and results are in {plan.folder}."
    )
    if plan.waiting:
        try:
            with study_progress.live(plan), prefect_server.local() as api:
                os.environ["PREFECT_API_URL"] = api
                with logged():
                    studies.study(name, changes, studies.usable(jobs))
        finally:
            study_progress.final(plan)
    else:
        with studies.held(plan):
            studies.summarise(plan, drawing=True)
        study_progress.final(plan)
    display.say(
        f"Done in {time.monotonic() - started:.0f} s. Look at {plan.folder / 'figure.png'}; results.json and results.csv are beside it."
    )


@app.command(epilog="Example: codline status")
def status() -> None:
    """Show each cycle: its labels, its accuracy, what is done and what is not."""
    from codline.orchestration import workspace

    params.cycles(Pipeline().params)
    display.status(workspace.stale())


@app.command(epilog="Example: codline query c1, then write labels into the csv that it names, and codline run")
def query(cycle: Annotated[str, typer.Argument(help="A cycle that has asked.")]) -> None:
    """Lay out what a cycle asks for: pictures to look at and, where people answer, rows to fill in."""
    elsewhere("codline.report.query_export", cycle)


@app.command(epilog="Example: codline serve, then elsewhere: prefect deployment run campaign/local --watch")
def serve() -> None:
    """Serve the flows from this directory: a Prefect server, and campaign/local and cycle/local to run by hand, from the page or on a schedule."""
    from codline.orchestration import prefect_server

    with prefect_server.local() as api:
        os.environ["PREFECT_API_URL"] = api
        sentence = f"Prefect is at {api.removesuffix('/api')}; campaign/local and cycle/local are served until you press Ctrl-C."
        from flows import deployments

        deployments.serve(lambda: display.say(sentence))


@app.command(epilog="Example: codline ui")
def ui(port: Annotated[int, typer.Option(help="For MLflow's page.")] = 5017) -> None:
    """Show the pages of MLflow and Prefect, on this machine alone."""
    from codline.orchestration import prefect_server

    store = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    if store.startswith("http"):
        raise UserError(f"MLFLOW_TRACKING_URI: MLflow has its page at {store} already")
    if prefect_server.taken(port):
        raise BusyError(f"port {port} is in use; choose another with --port")
    with prefect_server.local() as api:
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "ui",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
            "--backend-store-uri",
            store,
        ]
        experiment = (state_directory.read_note("runs", "campaign") or {}).get(
            "experiment", "1"
        )  # MLflow's own front page is about chats
        sentence = f"MLflow: http://127.0.0.1:{port}/#/experiments/{experiment}/runs    Prefect: {api.removesuffix('/api')}    Ctrl-C stops both."
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as page:
            try:
                while not prefect_server.taken(port):
                    if page.poll() is not None:
                        raise InfrastructureError(
                            f"MLflow's page did not start on port {port}; see what `mlflow ui --backend-store-uri {store}` says"
                        )
                    time.sleep(0.2)
                display.say(sentence)
                page.wait()
            except KeyboardInterrupt:
                pass
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(page.pid, signal.SIGTERM)  # MLflow's page is a process of several


@app.command(epilog="Example: MLFLOW_TRACKING_URI=http://127.0.0.1:5000 codline track")
def track() -> None:
    """Fill MLflow in from the files, where its server was away; what is there already is left alone."""
    elsewhere("codline.tracking", "sync")


@app.command(epilog="Example: codline preset fashion-mnist -S seed=1, then: dvc exp run")
def preset(
    name: Annotated[str, typer.Argument(help="One of those that `codline presets` lists.")], set_: Set = None
) -> None:
    """Write a preset into params.yaml, whole and checked, for dvc repro or dvc exp run to run."""
    from codline.orchestration import workspace

    with workspace.held():
        workspace.changed(overrides(set_ or []), name)
    display.say(f"params.yaml is written from the preset {name}; dvc repro or dvc exp run runs it.")


@app.command(epilog="Example: codline presets")
def presets() -> None:
    """List the presets."""
    display.presets({name: presets_.read(presets_.file(name, presets_.FOLDER)).about for name in presets_.names()})


@app.command(epilog="Example: codline strategies")
def strategies() -> None:
    """List the strategies and their parameters."""
    elsewhere("codline.cli.plugins", "strategies")


@app.command(epilog="Example: codline models")
def models() -> None:
    """List the models and their parameters."""
    elsewhere("codline.cli.plugins", "models")


@app.command(epilog="Example: codline datasets")
def datasets() -> None:
    """List the datasets and their parameters."""
    elsewhere("codline.cli.plugins", "datasets")


@app.command(epilog="Example: codline doctor")
def doctor() -> None:
    """Tell what on this machine could make bytes differ from the recorded ones."""
    elsewhere("codline.cli.doctor")


@app.command(hidden=True)
def setup() -> None:
    """Make what Prefect and MLflow need, once: called by make."""
    from codline.orchestration import prefect_server

    state_directory.root().mkdir(exist_ok=True)
    Path(".prefect").mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-m", "codline.tracking", "init"]) as tracking:
        with (
            contextlib.suppress(BusyError),
            prefect_server.local() as api,
        ):  # the first start makes the database; a taken port can wait for the first run
            os.environ["PREFECT_API_URL"] = api
            from codline.orchestration import prefect_runs

            prefect_runs.limited()
        if tracking.wait():
            raise CodlineError("the database of MLflow could not be made")


def elsewhere(module: str, *arguments: str) -> None:
    """Run a module that needs torch or mlflow in a process of its own, and leave with its exit code."""
    sys.exit(subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we started is stopped, too
    try:
        app()
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
