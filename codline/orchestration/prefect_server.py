"""A Prefect server on this machine: the one that is there, or one of our own for as long as we need it."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from codline.core.errors import BusyError, InfrastructureError
from codline.runtime.process_lifetime import OWNER, watch

PATIENCE = 90  # seconds; a new database takes 20 on a slow machine
AGAIN = 0.05  # seconds until a request that found the database locked is worth another try; four times as long after each try

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def url() -> str:
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or "http://127.0.0.1:4217/api"


def answers(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=2) as reply:
            return bool(reply.read() == b"true")
    except (OSError, ValueError):
        return False


def taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def local() -> Iterator[str]:
    """Yield the API of a server that answers; one that we start dies with us, even by SIGKILL."""
    api = url()
    if answers(api):
        yield api
        return
    port = urlsplit(api).port or 4200
    if taken(port):
        raise BusyError(
            f"port {port} is in use, but not by a Prefect server; stop what listens there or set PREFECT_API_URL to http://127.0.0.1:<another port>/api"
        )
    command, settings = (
        [sys.executable, "-m", "codline.orchestration.prefect_server", str(port)],
        os.environ | {OWNER: str(os.getpid())},
    )
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=settings
    ) as process:
        try:
            wait(api, process)
            yield api
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def wait(api: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not answers(api):
        if process.poll() is not None or time.monotonic() > deadline:
            raise InfrastructureError(
                f"the Prefect server did not start on {api}; see what `prefect server start` says"
            )
        time.sleep(0.2)


def app() -> App:
    from prefect.server.api.server import create_app

    return Hurried(create_app())


class Hurried:
    """Says when to try again: Prefect answers 503 where SQLite is locked for some milliseconds, as after most tasks, and its client would wait two seconds."""

    def __init__(self, app: App) -> None:
        self.app, self.refused = app, Counter[str]()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 503:
                wait = AGAIN * 4 ** self.refused[scope["path"]]
                self.refused[scope["path"]] += 1
                message = {**message, "headers": [*message["headers"], (b"retry-after", str(wait).encode())]}
            elif message["type"] == "http.response.start":
                self.refused.pop(scope["path"], None)
            await send(message)

        await self.app(scope, receive, sent)


def serve(port: int) -> None:
    watch()
    import uvicorn

    os.environ["PREFECT_UI_API_URL"] = f"http://127.0.0.1:{port}/api"
    uvicorn.run(
        "codline.orchestration.prefect_server:app",
        factory=True,
        host="127.0.0.1",
        port=port,
        log_level="error",
        timeout_graceful_shutdown=3,
    )


if __name__ == "__main__":
    serve(int(sys.argv[1]))
