"""A stage does not outlive whoever started it, nor its time limit."""

import os
import select
import signal
import threading
import time
from pathlib import Path

from codline.core.errors import InfrastructureError

OWNER = "CODLINE_OWNER"  # the process id of the flow
SHELLS = {"sh", "bash", "dash", "zsh"}


def watch() -> None:
    """End this process when its parent dies or, behind a shell, when the grandparent does, or the owner that the environment names.

    Unlike PR_SET_PDEATHSIG this sees past the shell that DVC runs commands in, and is not set off by the end of the thread that started us.
    Call it first of all: a parent that dies before it is called is not missed, the owner is.
    """
    for pid in {*ancestors(), int(os.environ.get(OWNER, 0))}:
        threading.Thread(target=follow, args=(pid,), daemon=True).start()


def limit(seconds: float) -> None:
    threading.Thread(target=expire, args=(seconds,), daemon=True).start()


def ancestors() -> list[int]:
    pid = os.getppid()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return [pid]
    is_shell = fields[0].partition("(")[2] in SHELLS
    return [pid, int(fields[2].split()[1])] if is_shell else [pid]


def follow(pid: int) -> None:
    if pid > 1:
        wait_for_death(pid)
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_death(pid: int) -> None:
    """At once on Linux, by looking five times a second elsewhere."""
    try:
        poller = select.poll()
        poller.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        while alive(pid):
            time.sleep(0.2)
    else:
        poller.poll()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def expire(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(InfrastructureError.exit_code)
