"""The Prefect server of this workspace, shared by its commands, or the one that the user has set.

A workspace's server is a process of its own that ends after the last command that uses it, even if that was killed:
every user holds a shared lock on .prefect/users.lock, and the server waits for the exclusive one. Whether it runs is
read off .prefect/server.lock, which it holds: an answer at its port could be anybody's.
"""

import base64
import contextlib
import fcntl
import http.client
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit

from codline.core.errors import BY_EXIT_CODE, BusyError, InfrastructureError, UserError
from codline.core.locks import file_lock
from codline.orchestration.prefect_database import prepare_prefect_database
from codline.orchestration.prefect_profile import HOME, ServerAccess, make_private_home, read_access
from codline.runtime.loopback import LOOPBACK, OPEN

START_SECONDS = 90.0  # a new database takes 20 s on a slow machine
END_SECONDS = 10.0
SERVER_LOCK = HOME / "server.lock"  # held by the server, which writes its address into it once it answers
USERS_LOCK = HOME / "users.lock"
START_LOCK = HOME / "start.lock"
LOG = HOME / "server.log"


@contextlib.contextmanager
def local_server() -> Iterator[str]:
    """Yield the API address of a server that answers: the one that the user has set, else this workspace's.

    Inside, the environment and Prefect's settings have its address and secret. A server on this machine is started if
    nothing listens at its address.
    """
    given = given_access()
    if given.url and not is_workspace_server(given.url) and is_answering(given):
        with client_settings(given):
            yield given.url
    elif given.url and not is_local(given.url):
        raise InfrastructureError(f"the Prefect server at {given.url} (PREFECT_API_URL) does not answer")
    else:
        with workspace_server(given) as access, client_settings(access):
            yield access.url


def given_access() -> ServerAccess:
    """What the user has set in the environment, .env or prefect.toml: everything but this workspace's profile."""
    from prefect.settings import Settings

    is_ours = "PREFECT_PROFILES_PATH" not in os.environ
    os.environ.setdefault("PREFECT_PROFILES_PATH", os.devnull)
    try:
        api = Settings().api
    finally:
        if is_ours:
            del os.environ["PREFECT_PROFILES_PATH"]
    return ServerAccess(api.url or "", api.auth_string.get_secret_value() if api.auth_string else "")


@contextlib.contextmanager
def client_settings(access: ServerAccess) -> Iterator[None]:
    """Point Prefect, here and in processes that are started here, to the server."""
    from prefect.context import refresh_global_settings_context

    settings = {"PREFECT_API_URL": access.url, "PREFECT_API_AUTH_STRING": access.secret}
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    refresh_global_settings_context()
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if value is not None}


@contextlib.contextmanager
def workspace_server(given: ServerAccess) -> Iterator[ServerAccess]:
    """Use this workspace's server, started if needed; at the port of `given.url`, if that is set."""
    make_private_home()
    with USERS_LOCK.open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while a server that nobody uses is ending
        process = start_if_needed(given)
        access = read_access()
        if given.url and not is_workspace_server(given.url):
            raise BusyError(f"this workspace's Prefect server is at {access.url}; stop it or unset PREFECT_API_URL")
        try:
            yield access
        finally:
            is_last = is_last_user(users)
            users.close()
            if process and is_last:
                with contextlib.suppress(subprocess.TimeoutExpired):  # another command may have come
                    process.wait(END_SECONDS)


def is_last_user(users: IO[str]) -> bool:
    """Whether nobody else uses the server; gives up the lock."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False  # others share it
    return True  # the server has got it


def start_if_needed(given: ServerAccess) -> subprocess.Popen[bytes] | None:
    """Wait until a server runs: another command's, or one that is started here and returned."""
    busy, process = "another command has been starting the Prefect server for minutes", None
    with file_lock(START_LOCK, busy, wait=2 * START_SECONDS):
        deadline = time.monotonic() + START_SECONDS
        while not (url := running_url()):
            if process is None and url is None:
                process = start_server(given)
            elif process and process.poll() is not None:
                raise start_error(process.returncode)
            if time.monotonic() > deadline:
                raise InfrastructureError(f"the Prefect server did not start in {START_SECONDS:.0f} s; see {LOG}")
            time.sleep(0.05)
    return process


def running_url() -> str | None:
    """The address of this workspace's server; empty while it starts, None if there is none."""
    with contextlib.suppress(FileNotFoundError, PermissionError), SERVER_LOCK.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip()
    return None


def is_workspace_server(url: str) -> bool:
    while is_local(url) and running_url() == "":
        time.sleep(0.05)
    return is_local(url) and urlsplit(running_url() or "").port == urlsplit(url).port


def start_server(given: ServerAccess) -> subprocess.Popen[bytes]:
    """Start the server, which inherits its lock, so that there is no moment without."""
    prepare_prefect_database()
    # While it is free: whoever finds it locked reads the address of the server that holds it.
    SERVER_LOCK.write_text("")
    port = (urlsplit(given.url).port or 80) if given.url else 0
    with SERVER_LOCK.open("a") as lock, LOG.open("wb") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)  # running_url holds it for moments
        return subprocess.Popen(
            [sys.executable, "-m", "codline.orchestration.prefect_process", str(lock.fileno()), str(port)],
            env=os.environ | {"PREFECT_API_AUTH_STRING": given.secret},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )


def start_error(code: int) -> Exception:
    lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
    sentences = [line.removeprefix("codline: ") for line in lines if line.startswith("codline: ")]
    if sentences and code in BY_EXIT_CODE:
        return BY_EXIT_CODE[code](sentences[-1])
    return InfrastructureError(f"the Prefect server did not start; see {LOG}")


def is_local(url: str) -> bool:
    return urlsplit(url).scheme == "http" and urlsplit(url).hostname in {LOOPBACK, "localhost"}


def is_answering(access: ServerAccess) -> bool:
    """Whether a Prefect server is at the address; raises UserError if it refuses the secret."""
    token = base64.b64encode(access.secret.encode()).decode()
    headers = {"Authorization": f"Basic {token}"} if access.secret else {}
    try:
        with open_url(f"{access.url}/admin/version", timeout=5, headers=headers) as reply:
            return bool(reply.status == 200)
    except HTTPError as error:
        if error.code in {401, 403}:
            reason = "refuses this PREFECT_API_AUTH_STRING" if access.secret else "demands a PREFECT_API_AUTH_STRING"
            raise UserError(f"the Prefect server at {access.url} {reason}") from error
        return False
    except (OSError, ValueError, http.client.HTTPException):
        return False


def open_url(url: str, timeout: float, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """A proxy must not see the secret of a server on this machine."""
    handlers = [urllib.request.ProxyHandler({})] if is_local(url) else []
    request = urllib.request.Request(url, headers=headers or {})
    reply: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    return reply


def page_address(api: str) -> str:
    """The address at which the owner of the server gets to Prefect's pages without being asked for the secret."""
    page = api.removesuffix("/api")
    return f"{page}{OPEN}#{os.environ['PREFECT_API_AUTH_STRING']}" if is_workspace_server(api) else page
