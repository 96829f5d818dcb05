"""Ends a process when the one that started it dies, or when its time limit is reached."""

import contextlib
import os
import select
import signal
import threading
import time
from pathlib import Path

from codline.core.errors import InfrastructureError

OWNER = "CODLINE_OWNER"  # environment variable: process id of the campaign that a process belongs to
SHELLS = {"sh", "bash", "dash", "zsh"}


def end_with_parents() -> None:
    """Kill this process when its parent, its grandparent (if the parent is a shell) or its owner dies.

    PR_SET_PDEATHSIG would not see past the shell in which DVC runs commands, and would also fire when the *thread* that
    started this process ends. Call it before slow imports: a parent that dies earlier than that goes unnoticed.
    """
    for pid in {*ancestors(), int(os.environ.get(OWNER, 0))}:
        if pid > 1:
            end_with(pid)


def end_with(pid: int) -> None:
    """Kill this process when the process `pid` dies."""

    def watch() -> None:
        wait_for_death(pid)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def end_after(seconds: float) -> None:
    def expire() -> None:
        time.sleep(seconds)
        os._exit(InfrastructureError.exit_code)

    threading.Thread(target=expire, daemon=True).start()


def kill_stages() -> None:
    """Kill the stages that this process is running. Linux only; elsewhere they run to their end."""
    for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if b"-m\0stages\0" in (Path(f"/proc/{pid}/cmdline").read_bytes().replace(b" ", b"\0")):
                    os.kill(pid, signal.SIGKILL)


def ancestors() -> list[int]:
    """The parent, followed by the grandparent if the parent is a shell."""
    pid = os.getppid()
    try:
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return [pid]
    is_shell = name.partition("(")[2] in SHELLS
    return [pid, int(fields.split()[1])] if is_shell else [pid]


def start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks: with its id, it identifies the process. Empty outside Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def wait_for_death(pid: int) -> None:
    """Immediate on Linux (pidfd); elsewhere checks five times a second."""
    try:
        poller = select.poll()
        poller.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        while is_alive(pid):
            time.sleep(0.2)
    else:
        poller.poll()


def is_alive(pid: int) -> bool:
    """A process that has ended, and that its parent has not yet asked about, is not alive: it holds nothing."""
    with contextlib.suppress(OSError):  # outside Linux
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
