"""Commands that start servers: `codline serve`, `codline ui` and the hidden `codline setup`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from codline.cli import display
from codline.core.errors import BusyError, CodlineError, InfrastructureError, UserError
from codline.runtime import state_directory


def serve() -> None:
    """Run campaigns from Prefect: start its server and serve the deployments campaign/local and cycle/local."""
    from codline.orchestration.prefect_server import local_server

    with local_server() as api:
        os.environ["PREFECT_API_URL"] = api
        from flows import deployments

        page = api.removesuffix("/api")
        message = f"Prefect is at {page}; campaign/local and cycle/local are served until you press Ctrl-C."
        deployments.serve_deployments(lambda: display.print_line(message))


def ui(port: Annotated[int, typer.Option(help="Port of MLflow's page.")] = 5017) -> None:
    """Browse runs and models in MLflow and flow runs in Prefect. Both pages are served on this machine only."""
    from codline.orchestration.prefect_server import is_port_in_use, local_server

    store = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    if store.startswith("http"):
        raise UserError(f"MLFLOW_TRACKING_URI: MLflow has its page at {store} already")
    if is_port_in_use(port):
        raise BusyError(f"port {port} is in use; choose another with --port")
    # The experiment's run list, in a view with metrics: MLflow's own front page is about its chat features.
    experiment = (state_directory.read_note("runs", "campaign") or {}).get("experiment", "1")
    mlflow_page = f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs?viewStateShareKey=cycles"
    with (
        local_server() as api,
        mlflow_server(port, store) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        while not is_port_in_use(port):
            if server.poll() is not None:
                command = f"mlflow ui --backend-store-uri {store}"
                raise InfrastructureError(f"MLflow's page did not start on port {port}; see the output of `{command}`")
            time.sleep(0.2)
        display.print_line(f"MLflow: {mlflow_page}    Prefect: {api.removesuffix('/api')}    Ctrl-C stops both.")
        server.wait()


@contextlib.contextmanager
def mlflow_server(port: int, store: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as server:
        try:
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)  # MLflow starts worker processes


def setup() -> None:
    """Create the databases of Prefect and MLflow. Called by make."""
    from codline.orchestration.prefect_server import local_server

    state_directory.state_root().mkdir(exist_ok=True)
    Path(".prefect").mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-m", "codline.tracking", "init"]) as tracking:
        # Prefect creates its database when it first starts; if the port is taken, that is left to the first run.
        with contextlib.suppress(BusyError), local_server():
            pass
        if tracking.wait():
            raise CodlineError("the database of MLflow could not be created")
