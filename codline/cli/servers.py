"""Commands that start servers: `codline serve`, `codline ui` and the hidden `codline setup`."""

import contextlib
import http.client
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from codline.cli import display
from codline.core.errors import BusyError, CodlineError, InfrastructureError, UserError
from codline.runtime import state_directory
from codline.runtime.loopback import LOOPBACK, OPEN, loopback_listener

MLFLOW_PORT = 5017


def serve() -> None:
    """Run campaigns from Prefect: start its server and serve the deployments campaign/local and cycle/local."""
    from codline.orchestration.prefect_server import local_server, page_address

    with local_server() as api:
        from flows import deployments

        message = f"Prefect: {page_address(api)}\ncampaign/local and cycle/local are served until you press Ctrl-C."
        deployments.serve_deployments(lambda: display.print_line(message))


def deploy(pool: Annotated[str, typer.Option(help="Prefect work pool whose workers run the campaigns.")]) -> None:
    """Let other machines run campaigns of the last commit: the workers of a Prefect work pool."""
    from codline.cli.prefect_session import prefect_session

    with prefect_session() as api:
        from codline.orchestration.work_pool import REMOTE_CAMPAIGN, deployment_name, pushed_code, require_worker
        from flows.deployments import deploy_to_pool

        deploy_to_pool(pool)
        name = f"{REMOTE_CAMPAIGN}/{deployment_name(pool, pushed_code())}"
        display.print_line(f"{name} is deployed at {api}. Run it: prefect deployment run {name} --watch")
        display.print_line("Its results, here: codline run --share, with the same parameters.")
        require_worker(pool)


def ui(
    port: Annotated[int | None, typer.Option(help="Port of MLflow's page. Default: 5017, or a free one.")] = None,
) -> None:
    """Browse runs and models in MLflow and flow runs in Prefect. Both pages are served on this machine only, to you."""
    from codline.orchestration.prefect_server import local_server, page_address

    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if store.startswith("http"):
        raise UserError(f"MLFLOW_TRACKING_URI: MLflow has its page at {store} already")
    with (
        loopback_listener(port or MLFLOW_PORT, is_fixed=port is not None) as listener,
        local_server() as api,
        mlflow_page(listener) as (server, address),
        contextlib.suppress(KeyboardInterrupt),
    ):
        display.print_line(f"MLflow:  {address}\nPrefect: {page_address(api)}\nCtrl-C stops both.")
        server.wait()


@contextlib.contextmanager
def mlflow_page(listener: socket.socket) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Serve MLflow's page at the listening socket, which is closed here; yield the process and the owner's address."""
    port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    # The experiment's run list, in a view with metrics: MLflow's own front page is about its chat features.
    experiment = (state_directory.read_note("runs", "campaign") or {}).get("experiment", "1")
    landing = f"/#/experiments/{experiment}/runs?viewStateShareKey=cycles"
    command = [sys.executable, "-m", "codline.tracking.mlflow_page", str(listener.fileno()), landing]
    log = state_directory.state_root() / "mlflow_page.log"
    log.parent.mkdir(exist_ok=True)
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            env=os.environ | {"CODLINE_MLFLOW_TOKEN": token},
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[listener.fileno()],
        ) as server,
    ):
        listener.close()
        try:
            while not is_serving(port):
                if server.poll() is not None:
                    raise InfrastructureError(f"MLflow's page did not start on port {port}; see {log}")
                time.sleep(0.2)
            yield server, f"http://{LOOPBACK}:{port}{OPEN}?token={token}"
        finally:
            server.terminate()


def is_serving(port: int) -> bool:
    """Whether a web server answers. Connections alone do not show it: the socket has been listening before."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", OPEN)
        return connection.getresponse().status == 401
    return False


def setup() -> None:
    """Create the databases of Prefect and MLflow. Called by make."""
    from codline.orchestration.prefect_server import local_server

    state_directory.state_root().mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-m", "codline.tracking", "init"]) as tracking:
        # Prefect creates its database when it first starts; if the port is taken, that is left to the first run.
        with contextlib.suppress(BusyError), local_server():
            pass
        if tracking.wait():
            raise CodlineError("the database of MLflow could not be created")
