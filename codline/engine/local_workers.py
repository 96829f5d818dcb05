"""Worker processes on this machine: they compute items, and the results come back in the order of the items."""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from codline.core.errors import InfrastructureError
from codline.engine.ordered_results import results_in_order
from codline.runtime import out_of_memory
from codline.runtime.code_files import ROOT
from codline.runtime.fork_server import SOCKET

ATTEMPTS = 3  # to compute an item whose worker dies

T = TypeVar("T")
R = TypeVar("R")


def compute_in_order(
    workers: int, setup: Callable[[], object], job: Callable[[], Callable[[T], R]], items: Iterable[T]
) -> Generator[R]:
    """Yield `job()(item)` for all items, in their order, computed by this number of processes.

    Each process calls `setup()`, then loads and calls `job()`, then its result for one item after the other; all of
    them are pickled. Memory does not grow with the number of items, see ordered_results.py. Every engine provides this
    function.
    """
    messages = pickle.dumps(setup), pickle.dumps(job)
    team = [PassWorker(messages) for _ in range(workers)]
    idle = SimpleQueue[PassWorker]()
    for worker in team:
        idle.put(worker)

    def compute(item: bytes) -> bytes:
        worker = idle.get()
        try:
            return worker.compute(item)
        finally:
            idle.put(worker)

    def end() -> None:
        for worker in team:
            worker.end()

    try:
        yield from results_in_order(workers, compute, items, stop=end)
    finally:
        end()


class PassWorker:
    """One process at a time, started with its first item and replaced if it dies."""

    def __init__(self, messages: tuple[bytes, bytes]) -> None:
        self.messages = messages  # to every new process: setup, job
        self.lock, self.is_ended = threading.Lock(), False
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection[bytes, bytes] | None = None

    def compute(self, item: bytes) -> bytes:
        """The answer to this item, see job_answers.py."""
        for _ in range(ATTEMPTS):
            kernel_kills, unsent = out_of_memory.kernel_kills(), [item]
            if self.connection is None:
                self.start()
                unsent = [*self.messages, item]
            try:
                return self.exchange(unsent)
            except (EOFError, OSError):  # the process has died
                self.stop()
                if out_of_memory.kernel_kills() > kernel_kills:  # a new process would be killed again
                    raise MemoryError from None
        found = f"a worker process of the pass died {ATTEMPTS} times on the same images"
        raise InfrastructureError(f"{found}; run it again, with fewer workers or --engine local if memory is short")

    def exchange(self, messages: list[bytes]) -> bytes:
        assert self.connection is not None
        for message in messages:
            self.connection.send_bytes(message)
        return self.connection.recv_bytes()

    def start(self) -> None:
        with self.lock:
            if self.is_ended:
                raise InfrastructureError("the pass was stopped")
            ours, theirs = socket.socketpair()
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "codline.engine.worker", str(Path.cwd())],
                    cwd=ROOT,  # from which it imports its code
                    env=worker_environment(),
                    stdin=theirs.fileno(),
                    start_new_session=True,  # Ctrl-C is for the stage, with which its workers end
                )
            self.connection = Connection(ours.detach())

    def end(self) -> None:
        """Stop the process and start no other."""
        with self.lock:
            self.is_ended = True
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def stop(self) -> None:
        with self.lock:
            assert self.process is not None
            assert self.connection is not None
            self.process.kill()
            self.process.wait()
            self.connection.close()
            self.process = self.connection = None


def worker_environment() -> dict[str, str]:
    """The path of the fork server's socket is relative, and the worker starts in another directory."""
    path = os.environ.get(SOCKET)
    return dict(os.environ) | ({SOCKET: os.path.relpath(path, ROOT)} if path else {})
