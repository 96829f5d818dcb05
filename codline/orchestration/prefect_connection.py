"""The connection of a flow to its Prefect server: a lost server ends the process, other errors become one sentence.

Prefect's client would retry each request for a minute, and then again for the state of each task and flow.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import NoReturn
from urllib.error import HTTPError as ErrorReply

from httpx import HTTPError, HTTPStatusError
from prefect.exceptions import PrefectException
from prefect.settings import get_current_settings

from codline.core.errors import InfrastructureError
from codline.orchestration.prefect_server import open_url

POLL_SECONDS = 1.0
REPLY_SECONDS = 10.0  # a server under load may take seconds to reply; one that has died refuses at once
LOST_AFTER = 3  # polls in a row without a reply
SHOW_CURSOR = "\x1b[?25h"  # progress bars hide it

_watched = threading.Lock()  # held while a thread of this process watches the server


@contextlib.contextmanager
def prefect_connection() -> Iterator[None]:
    """Watch the server that Prefect's settings name. Inside another `prefect_connection`, that one watches."""
    api = get_current_settings().api.url
    if api is None or not _watched.acquire(blocking=False):  # without an address, Prefect has a server in this process
        yield
        return
    closed = threading.Event()
    threading.Thread(target=exit_when_lost, args=(api, closed), daemon=True).start()
    try:
        yield
    except (HTTPError, PrefectException) as error:
        raise InfrastructureError(f"the Prefect server at {api}: {describe(error)}") from error
    finally:
        closed.set()
        _watched.release()


def exit_when_lost(api: str, closed: threading.Event) -> None:
    """Poll the server; one that has never replied, for example through a proxy that Prefect alone uses, is left alone.

    The process ends without clean-up, in which Prefect would wait for the server. Stages and other processes of the
    campaign end with it, as after a kill, and the next flow marks this one as crashed.
    """
    if not has_reply(api):
        return
    missed = 0
    while not closed.wait(POLL_SECONDS):
        missed = 0 if has_reply(api) else missed + 1
        if missed == LOST_AFTER and not closed.is_set():
            exit_lost(api)


def has_reply(api: str) -> bool:
    try:
        with open_url(f"{api}/health", timeout=REPLY_SECONDS):
            return True
    except ErrorReply as error:
        return error.code < 500  # a proxy replies 502 to 504 without its server
    except (OSError, HTTPException, ValueError):
        return False


def exit_lost(api: str) -> NoReturn:
    if sys.stdout.isatty():
        sys.stdout.write(f"{SHOW_CURSOR}\n")
        sys.stdout.flush()
    sys.stderr.write(f"codline: the Prefect server at {api} stopped answering; run it again to go on from here\n")
    sys.stderr.flush()
    os._exit(InfrastructureError.exit_code)


def describe(error: Exception) -> str:
    if isinstance(error, HTTPStatusError):
        return f"{error.response.status_code} {error.response.reason_phrase} for {error.request.url}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
