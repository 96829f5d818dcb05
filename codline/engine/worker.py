"""A worker process of a pass. Started by codline/engine/local_workers.py, with a socket as standard input:

    python -m codline.engine.worker DIRECTORY

Messages are pickled: two functions, `setup` and `job`, then items, each of which is answered by (True, result) or
(False, [error, its cause, ...]). It ends with the process that started it. Where a fork server runs, it is forked from
that, with torch already imported.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from codline.core.errors import CodlineError, causes
from codline.runtime import fork_server
from codline.runtime.process_lifetime import end_with_parents

FORKED = "forked"  # argument of a process that was forked from the server


def main(directory: str, *arguments: str) -> None:
    if FORKED not in arguments:
        end_with_parents()  # before slow imports, during which a parent could die unnoticed
        if path := os.environ.get(fork_server.SOCKET):
            fork_server.run_forked(Path(path), "codline.engine.worker", [directory, FORKED])
    else:
        os.setsid()  # as the process that it stands in for: Linux gives each session, not each process, the same time
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir(directory)
    serve(Connection(os.dup(0)))


def serve(connection: "Connection[bytes, bytes]") -> None:
    """Answer items until the connection is closed."""
    compute: Callable[[Any], Any] | None = None
    try:
        setup, job = connection.recv_bytes(), connection.recv_bytes()
        while True:
            item = connection.recv_bytes()
            try:
                if compute is None:
                    pickle.loads(setup)()  # before the networks of the job are loaded: torch reads some settings once
                    compute = pickle.loads(job)()
                answer = pickle.dumps((True, compute(pickle.loads(item))))
            except Exception as error:
                answer = pickle.dumps((False, picklable_errors(error)))
            connection.send_bytes(answer)
    except (EOFError, OSError):  # the stage has ended, or needs no more
        return


def picklable_errors(error: Exception) -> list[BaseException]:
    """The error and its causes, which pickle would leave out; an unexpected one has its traceback as a note."""
    errors, lines = list(causes(error)), "".join(traceback.format_exception(error))
    if not isinstance(error, CodlineError):
        error.add_note(lines)
    try:
        pickle.loads(pickle.dumps(errors))
    except Exception:
        errors = [CodlineError(f"unexpected {type(error).__name__}: {error}")]
        errors[0].add_note(lines)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:])
