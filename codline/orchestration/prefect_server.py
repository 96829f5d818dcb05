"""A Prefect server on this machine: the one that answers already, or one that lives as long as this process."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from codline.core.errors import BusyError, InfrastructureError
from codline.runtime.process_lifetime import OWNER, end_with_parents

START_SECONDS = 90.0  # a new database takes 20 s on a slow machine
DEFAULT_URL = "http://127.0.0.1:4217/api"


def api_url() -> str:
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or DEFAULT_URL


def is_healthy(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=2) as reply:
            return bool(reply.read() == b"true")
    except (OSError, ValueError):
        return False


def is_port_in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def local_server() -> Iterator[str]:
    """Yield the API address of a server that answers. One started here ends with this process, even on SIGKILL."""
    api = api_url()
    if is_healthy(api):
        yield api
        return
    port = urlsplit(api).port or 4200
    if is_port_in_use(port):
        raise BusyError(
            f"port {port} is in use, but not by a Prefect server; stop what listens there"
            " or set PREFECT_API_URL to http://127.0.0.1:<another port>/api"
        )
    command, environment = [sys.executable, "-m", __name__, str(port)], os.environ | {OWNER: str(os.getpid())}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True, env=environment) as process:
        try:
            wait_until_healthy(api, process)
            yield api
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def wait_until_healthy(api: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_healthy(api):
        if process.poll() is not None or time.monotonic() > deadline:
            raise InfrastructureError(
                f"the Prefect server did not start on {api}; see the output of `prefect server start`"
            )
        time.sleep(0.1)


def run_server(port: int) -> None:
    end_with_parents()
    import uvicorn

    os.environ["PREFECT_UI_API_URL"] = f"http://127.0.0.1:{port}/api"
    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        host="127.0.0.1",
        port=port,
        log_level="error",
        timeout_graceful_shutdown=3,
    )


if __name__ == "__main__":
    run_server(int(sys.argv[1]))
