"""A worker process of a pass. Started by codline/engine/local_workers.py, with a socket as standard input:

    python -m codline.engine.worker DIRECTORY

Messages are pickled: two functions, `setup` and `job`, then items, each of which is answered as job_answers.py says.
It ends with the process that started it. Where a fork server runs, it is forked from that, with torch already imported.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from codline.engine.job_answers import JobRunner
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
    try:
        runner = JobRunner(setup=connection.recv_bytes(), job=connection.recv_bytes())
        while True:
            connection.send_bytes(runner.answer(connection.recv_bytes()))
    except (EOFError, OSError):  # the stage has ended, or needs no more
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
