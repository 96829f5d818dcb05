"""Fork server: imports torch and other libraries once per campaign and forks one child per stage, saving seconds each.

It imports none of our modules that a stage runs, so a stage runs the code that is in its files by then, and it computes
nothing, so a forked stage gives the same bytes as one started afresh. Linux only; without it, stages start normally.

    python -m codline.runtime.fork_server SOCKET OWNER MODULE...
"""

import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from codline.core.errors import InfrastructureError, Stopped
from codline.runtime import dvc_repair
from codline.runtime.process_lifetime import end_with, wait_for_death
from codline.runtime.state_directory import state_root

SOCKET = "CODLINE_FORK_SERVER"  # environment variable: path of the socket to use instead of the workspace's own
OUR_PACKAGES = ("stages", "codline", "flows")
# What stages import besides our own modules, soonest needed first; codline.data pins numpy's CPU code.
PRELOADED = [
    "codline.data",
    "numpy",
    "pyarrow.parquet",
    "torch",
    "torch._dynamo",  # imported by every optimizer
    "safetensors.torch",
    "sklearn.datasets",
    "scipy.stats",
    "matplotlib.figure",
    "jinja2",
]
START_SECONDS = 2.0  # to wait for the socket; it takes a tenth of a second


def socket_path(owner: int) -> Path:
    """Socket of the server that belongs to the process `owner`, relative: a socket's path may have 107 characters."""
    return Path(os.environ.get(SOCKET) or os.path.relpath(state_root() / f"fork-server-{owner}.sock"))


def start(owner: int) -> subprocess.Popen[bytes] | None:
    """Start a server that ends with the process `owner`. It accepts requests while it is still importing."""
    if sys.platform != "linux":
        return None
    path = socket_path(owner)
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob("fork-server-*.sock"):
        if not Path(f"/proc/{leftover.stem.rpartition('-')[2]}").exists():
            leftover.unlink(missing_ok=True)
    command = [sys.executable, "-m", __name__, str(path), str(owner), *PRELOADED]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not path.exists() and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return server


def run_forked(path: Path, module: str, arguments: list[str]) -> None:
    """Run `python -m module arguments` in a child of the server and exit as it does; return if no server answers."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child receives Ctrl-C too and handles it
    code = run_in_child(path, module, arguments, str(Path.cwd()), dict(os.environ), [0, 1, 2])
    if code is None:
        signal.signal(signal.SIGINT, before)
        return
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def run_in_child(
    path: Path, module: str, arguments: list[str], directory: str, environment: dict[str, str], streams: list[int]
) -> int | None:
    """The exit code of a module that a child of the server runs, negative for a signal; None if no server answers."""
    request = json.dumps([module, arguments, directory, environment]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
            socket.send_fds(connection, [len(request).to_bytes(4, "big")], streams)
            connection.sendall(request)
        except OSError:
            return None
        answer = connection.recv(4)
    return int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL


def fork_for_requests(path: Path, modules: Iterator[str]) -> socket.socket:
    """Fork for every request, and import one module after another in between. Returns in the children alone."""
    listener = listen(path)
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        module: str | None = ""
        while True:
            for key, _ in events.select(None if module is None else 0):
                if key.fileobj is not listener:
                    events.unregister(key.fileobj)
                    report_exit(key.fd, *key.data)
                    continue
                connection, _ = listener.accept()
                if not (pid := os.fork()):
                    listener.close()
                    return connection
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            if module is not None and (module := next(modules, None)):
                importlib.import_module(module)
                gc.collect()
                gc.freeze()  # otherwise the children's garbage collectors would touch, and so copy, all of it


def end_with_owner(owner: int) -> None:
    """When the campaign, or the run of DVC, that the server belongs to has ended: repair what a kill left, and end."""
    wait_for_death(owner)
    try:
        dvc_repair.repair()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)  # accessible to this user alone: the server runs what it is sent
    listener.bind(str(path))
    os.umask(umask)
    listener.listen()
    return listener


def report_exit(pidfd: int, pid: int, connection: socket.socket) -> None:
    os.close(pidfd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with connection:
        try:
            connection.sendall(code.to_bytes(4, "big", signed=True))
        except OSError:  # the client has died
            return


def take_over(connection: socket.socket, server: int) -> str:
    """In a child: adopt the client's streams, environment and directory. End when the client or the server does."""
    length, streams, _, _ = socket.recv_fds(connection, 4, 3)
    request = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    if not request or len(request) < int.from_bytes(length, "big"):  # the client has died
        os._exit(InfrastructureError.exit_code)
    module, arguments, directory, environment = json.loads(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if sys.path[0] == str(Path.cwd()):  # where -m puts it
        sys.path[0] = directory
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with(server)
    be_killed_with_connection(connection)
    threading.Thread(target=end_with_connection, args=(connection,), daemon=True).start()
    for name in [name for name in sys.modules if name.split(".")[0] in OUR_PACKAGES]:
        del sys.modules[name]
    sys.argv = [module, *arguments]
    return str(module)


def end_with_connection(connection: socket.socket) -> None:
    """Not by recv: while a thread waits in it, the kernel sends no signal."""
    wait_for_close(connection, None)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_close(connection: socket.socket, milliseconds: int | None) -> bool:
    """Whether the client closes the connection within this time; None: wait for it. It sends nothing more."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(milliseconds))


def be_killed_with_connection(connection: socket.socket) -> None:
    """Let the kernel kill this process when the client closes the connection, or exit if it has done so already.

    The thread above cannot while the stage is in a long call that holds Python's global lock.
    """
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    if wait_for_close(connection, 0):  # before the kernel was asked
        os._exit(InfrastructureError.exit_code)


def run_and_exit(module: str) -> NoReturn:
    """Exit without the interpreter's finalization, which would copy the preloaded modules in order to free them."""
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = Stopped.exit_code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    threading.Thread(target=end_with_owner, args=(int(sys.argv[2]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server_pid = os.getpid()
    client = fork_for_requests(Path(sys.argv[1]), iter(sys.argv[3:]))
    run_and_exit(take_over(client, server_pid))
