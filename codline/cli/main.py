"""The `codline` command.

Commands import Prefect and DVC only when they run, and leave whatever needs torch or MLflow to separate processes, so
that `codline --help` and refusals are quick.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from codline.cli import display, environment
from codline.cli.clean import clean
from codline.cli.options import EXIT_CODES, Set, parse_overrides
from codline.cli.paper import paper
from codline.cli.run import run
from codline.cli.servers import deploy, serve, setup, ui
from codline.cli.study import study
from codline.cli.verify import verify
from codline.core import params
from codline.core.errors import exit_on_error
from codline.core.project_root import require_project_root
from codline.orchestration import presets as preset_layers
from codline.orchestration.site_cache import configure_site_cache
from codline.runtime import log, process_lifetime
from codline.runtime.pipeline import Pipeline

EXIT_SECONDS = 10.0  # for Prefect to send the last events
ANYWHERE = ("--version", "--help", "strategies", "models", "datasets")  # what needs no project
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def print_version(is_wanted: bool) -> None:
    if is_wanted:
        display.print_line(f"codline {version('codline')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Decide which images are worth labelling."""
    configure_site_cache(Path())


app.command(epilog=f"Example: codline run --strategy entropy --seed 1 -S train.epochs=10    {EXIT_CODES}")(run)
app.command(epilog=f"Example: codline study digits-strategies --jobs 2 -S train.epochs=5    {EXIT_CODES}")(study)
app.command(epilog=f"Example: codline paper classification --scale smoke    {EXIT_CODES}")(paper)


@app.command(epilog="Example: codline status")
def status() -> None:
    """Show each cycle: its labels, its primary metric with a 95% interval, what is done and what is to do."""
    from codline.orchestration.answers import missing_labels
    from codline.orchestration.dvc_activity import running_stages
    from codline.orchestration.dvc_stages import stale_stages
    from codline.orchestration.params_file import check_inputs

    pipeline = Pipeline()
    params.parse_cycles(pipeline.params)
    check_inputs(pipeline.params)
    outdated = stale_stages(follow=True)
    display.print_status(outdated, running_stages(pipeline), missing_labels(outdated))


@app.command(epilog="Example: codline query c1, then fill in the column `label` of answers/c1.csv, and codline run")
def query(
    cycle: Annotated[str, typer.Argument(help="Cycle whose query to export.")],
    copy: Annotated[bool, typer.Option("--copy", help="Copy the original files instead of linking to them.")] = False,
) -> None:
    """Export the images of a cycle's query and, if people annotate, a csv file to fill in."""
    run_module("codline.labeling.query_export", cycle, *(["--copy"] if copy else []))


@app.command(epilog="Example: codline export labels.csv --imagefolder labelled")
def export(
    table: Annotated[str | None, typer.Argument(help="File to write: .csv or .parquet.")] = None,
    imagefolder: Annotated[
        str | None, typer.Option(help="Folder to make, with a folder per class of links to the labelled images.")
    ] = None,
) -> None:
    """Write the labels and predictions of all images by file name."""
    options = ["--imagefolder", imagefolder] if imagefolder else []
    run_module("codline.labeling.label_export", *([table] if table else []), *options)


app.command(epilog="Example: codline serve, in another shell: prefect deployment run campaign/local --watch")(serve)
app.command(epilog=f"Example: codline deploy --pool gpu    {EXIT_CODES}")(deploy)
app.command(epilog="Example: codline ui")(ui)


@app.command(epilog="Example: MLFLOW_TRACKING_URI=http://127.0.0.1:5000 codline track")
def track() -> None:
    """Log to MLflow whatever it is missing (for example after an outage)."""
    run_module("codline.tracking", "sync")


@app.command(epilog="Example: codline preset fashion-mnist -S seed=1, then: dvc exp run")
def preset(
    name: Annotated[str, typer.Argument(help="A preset listed by `codline presets`.")], set_: Set = None
) -> None:
    """Check a preset and write it to params.yaml, to be run by dvc repro or dvc exp run."""
    from codline.orchestration.params_file import update_params
    from codline.orchestration.workspace import open_workspace

    with open_workspace():
        update_params(parse_overrides(set_), name)
    display.print_line(f"params.yaml is written from the preset {name}; dvc repro or dvc exp run runs it.")


@app.command(epilog="Example: codline presets")
def presets() -> None:
    """List the presets."""
    files = {name: preset_layers.layer_file(name, preset_layers.FOLDER) for name in preset_layers.names()}
    display.print_presets({name: preset_layers.read_layer(file).about for name, file in files.items()})


@app.command(epilog="Example: codline strategies")
def strategies() -> None:
    """List the strategies and their parameters."""
    run_module("codline.cli.plugins", "strategies")


@app.command(epilog="Example: codline models")
def models() -> None:
    """List the models and their parameters."""
    run_module("codline.cli.plugins", "models")


@app.command(epilog="Example: codline datasets")
def datasets() -> None:
    """List the datasets and their parameters."""
    run_module("codline.cli.plugins", "datasets")


@app.command(epilog="Example: codline doctor")
def doctor() -> None:
    """Show what on this machine could make outputs differ from the recorded ones, byte for byte."""
    run_module("codline.cli.doctor")


app.command(epilog=f"Example: codline verify --repair, then codline run    {EXIT_CODES}")(verify)
app.command(epilog=f"Example: codline clean, then codline clean cache prefect    {EXIT_CODES}")(clean)
app.command(hidden=True)(setup)


def run_module(module: str, *arguments: str) -> None:
    """Run a module that imports torch or MLflow in a separate process, and exit with its exit code."""
    sys.exit(subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode)


def exit_on_sigterm(*_: object) -> None:
    """Raise an exception, so that started processes are stopped too. Stages are killed: a campaign waits for them."""
    process_lifetime.kill_stages()
    sys.exit(143)


def limit_exit(code: object) -> None:
    """Let Python exit within EXIT_SECONDS: Prefect's exit handlers wait without end for a server that has died."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk
            stream.flush()
    timer = threading.Timer(EXIT_SECONDS, os._exit, [code if isinstance(code, int) else int(code is not None)])
    timer.daemon = True
    timer.start()


def main() -> None:
    environment.set_environment()
    log.show_warnings()
    signal.signal(signal.SIGTERM, exit_on_sigterm)
    code: object = 1
    try:
        with exit_on_error():
            if sys.argv[1:2] and sys.argv[1] not in ANYWHERE and "--help" not in sys.argv:
                require_project_root()
            app()
    except SystemExit as ended:
        code = ended.code
        raise
    finally:
        limit_exit(code)


if __name__ == "__main__":
    main()
