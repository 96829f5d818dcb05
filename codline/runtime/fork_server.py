"""A process that has the heavy libraries imported and forks for whoever asks: torch and MLflow then cost their seconds once, not in every stage.

It imports none of our code before it forks, so what runs is what the files say by then; and it computes nothing, so bits are those of a process started afresh.
`python -m` of our modules asks it where CODLINE_WARM names its socket, and starts as usual where nobody answers. It forks, so it is for Linux.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from codline.core.errors import Stopped
from codline.runtime.process_lifetime import follow, watch

HEAVY = ("stages", "codline")  # whose modules import what is imported here
OURS = (*HEAVY, "flows")


def hand_over() -> None:
    """Have the warm process run what this one was asked to, and end as it ends; return if it cannot."""
    if sys.orig_argv[1] != "-m" or sys.orig_argv[2].split(".")[0] not in HEAVY:
        return
    watch()
    request = json.dumps(
        {
            "module": sys.orig_argv[2],
            "arguments": sys.orig_argv[3:],
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
        }
    ).encode()
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(os.environ["CODLINE_WARM"])
            socket.send_fds(door, [len(request).to_bytes(4, "big")], [0, 1, 2])
            door.sendall(request)
        except OSError:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever works for us hears a Ctrl-C, too, and knows what to do
        answer = door.recv(4)
    code = int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(path: Path, modules: Iterator[str]) -> socket.socket:
    """Fork for every caller, and import a module while there is none. Returns in the forked processes alone, with the caller."""
    door = listening(path)
    with selectors.DefaultSelector() as events:
        events.register(door, selectors.EVENT_READ)
        todo: str | None = ""
        while True:
            for key, _ in events.select(None if todo is None else 0):
                if key.fileobj is not door:
                    events.unregister(key.fileobj)
                    report(key.fd, *key.data)
                    continue
                caller, _ = door.accept()
                if not (pid := os.fork()):
                    door.close()
                    return caller
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, caller))
            if todo is not None and (todo := next(modules, None)):
                importlib.import_module(todo)
                gc.collect()
                gc.freeze()  # or the children's collectors would touch, and so copy, all of it


def listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # for nobody else on this machine: it runs what it is told
    door.bind(str(path))
    os.umask(before)
    door.listen()
    return door


def report(process: int, pid: int, caller: socket.socket) -> None:
    """Tell the caller how its process ended, if it is still there."""
    os.close(process)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with caller:
        try:
            caller.sendall(code.to_bytes(4, "big", signed=True))
        except OSError:
            return


def become(caller: socket.socket, parent: int) -> str:
    """Take the caller's place: its streams, its environment, its folder; and end when it does, or when the warm process does."""
    head, streams, _, _ = socket.recv_fds(caller, 4, 3)
    request = json.loads(caller.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if sys.path[0] == str(Path.cwd()):  # as -m puts it there
        sys.path[0] = request["folder"]
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=follow, args=(parent,), daemon=True).start()
    threading.Thread(target=outlast, args=(caller,), daemon=True).start()
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    sys.argv = [request["module"], *request["arguments"]]
    return str(request["module"])


def outlast(caller: socket.socket) -> None:
    caller.recv(1)  # it never says another word
    os.kill(os.getpid(), signal.SIGKILL)


def leave(module: str) -> NoReturn:
    """Run the module and end without the interpreter's tidying up: it would copy, to free it, all that the warm process has imported."""
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
    watch()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm = os.getpid()
    caller = serve(Path(sys.argv[1]), iter(sys.argv[2:]))
    leave(become(caller, warm))
