"""The process of a workspace's Prefect server, on loopback, with a secret that is new at every start.

python -m codline.orchestration.prefect_process LOCK PORT: the file descriptor of the lock that it takes over, and the
port, or 0 for the last one that this workspace had, or any free one.
"""

import fcntl
import os
import secrets
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from codline.core.errors import InfrastructureError, exit_on_error
from codline.orchestration.prefect_profile import ServerAccess, read_access, write_access
from codline.orchestration.prefect_server import END_SECONDS, LOG, USERS_LOCK
from codline.runtime.loopback import LOOPBACK, OPEN, loopback_listener
from codline.runtime.server_guard import ServerGuard

# FastAPI's pages about the API load scripts from elsewhere, which could read the secret that the browser keeps.
CLOSED = {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
# Keeps the secret, which follows the # and so is never sent, where the login page of Prefect would keep it.
ENTRANCE = """<!doctype html><meta charset="utf-8"><title>Prefect</title><script>
localStorage.setItem("prefect-password", btoa(location.hash.slice(1))); location.replace("/");
</script>"""


class PrefectPages:
    """Prefect with an entrance for the owner of the server, and without the pages in CLOSED."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app
        if scope["type"] == "http" and scope["path"] == OPEN:
            answer = HTMLResponse(ENTRANCE)
        elif scope["type"] == "http" and scope["path"] in CLOSED:
            answer = PlainTextResponse("not found", 404)
        await answer(scope, receive, send)


def run_server(lock: int, port: int) -> None:
    os.set_inheritable(lock, False)
    threading.Thread(target=end_without_users, daemon=True).start()
    last = urlsplit(read_access().url).port or 0
    with loopback_listener(port or last, is_fixed=bool(port)) as listener:
        port = listener.getsockname()[1]
        # New at every start: while no server ran, anybody may have listened at the port and been sent the last one.
        secret = os.environ.pop("PREFECT_API_AUTH_STRING") or secrets.token_urlsafe(32)
        access = ServerAccess(f"http://{LOOPBACK}:{port}/api", secret)
        write_access(access)
        os.environ |= {
            "PREFECT_SERVER_API_AUTH_STRING": secret,
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{LOOPBACK}:{port}",
            "PREFECT_UI_API_URL": "/api",
        }
        import uvicorn
        from prefect.server.api.server import create_app

        class WorkspaceServer(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if self.started:
                    os.write(lock, f"{access.url}\n".encode())

        app = ServerGuard(PrefectPages(create_app()), port)
        server = WorkspaceServer(uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=3))
        server.run(sockets=[listener])
        if not server.started:
            raise InfrastructureError(f"the Prefect server did not start; see {LOG}")


def end_without_users() -> None:
    """Stop this process when no command uses it any more."""
    with USERS_LOCK.open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(END_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with exit_on_error():
        run_server(int(sys.argv[1]), int(sys.argv[2]))
