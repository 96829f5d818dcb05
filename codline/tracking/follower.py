"""Beside a running stage: epochs go to MLflow as they come, the results when the stage says that it is done."""

import os
import signal
import sys
import threading
from typing import Any, NoReturn

from codline.core.errors import CodlineError
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking.address import unanswered

GRACE = 20.0  # seconds after the stage's end in which MLflow must have been reached
EVERY = 1.0  # seconds between two looks at the stage's progress


class Listener(threading.Thread):
    """Hears the stage: `done`, `failed`, or the end of its pipe, at which this process ends at once, wherever it is."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.heard = threading.Event()
        self.word = ""
        self.connected = False
        self.waits = False  # is there something to do after a failure?

    def run(self) -> None:
        for line in sys.stdin:
            self.word = line.strip()
            if self.word == "failed" and not self.waits:
                break
            self.heard.set()
            threading.Timer(GRACE, self.give_up).start()
        os._exit(0)

    def give_up(self) -> None:
        """Some databases are tried for minutes before MLflow says that they are not there."""
        if not self.connected:
            leave(f"codline: {unanswered(f'for {GRACE:.0f} s')}\n")


def follow(stage: str, cycle: str | None) -> None:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")  # of MLflow's own two minutes: the stage waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the stage hears it too, and tells us
    listener = Listener()
    listener.start()
    try:
        log(listener, stage, cycle)
    except CodlineError as error:
        leave(f"codline: {error}\n")
    except Exception as error:
        leave(
            f"codline: MLflow was not told of {stage}: unexpected {type(error).__name__}: {error}; run `codline track` later\n"
        )
    leave()


def leave(words: str = "") -> NoReturn:
    """At once: what is logged is logged, and nobody need wait for the libraries to tidy up."""
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(0)


def log(listener: Listener, stage: str, cycle: str | None) -> None:
    from codline.tracking.store import Store, answering  # mlflow: imported while the stage works
    from codline.tracking.sync import sync, turn

    pipeline = Pipeline()
    with answering():
        with turn():
            store = Store()
        listener.connected = True
        if stage == "train" and cycle is not None:
            watch(listener, store, pipeline, cycle)
        if stage == "evaluate":
            preload()
        listener.heard.wait()
        if listener.word == "done":
            name = f"{stage}@{cycle}" if cycle else stage
            for _ in sync(store, pipeline, [cycle] if cycle else pipeline.cycles, ran=name):
                pass


def preload() -> None:
    """What the results of evaluate need: half a second that is better spent while the stage still works."""
    import mlflow.pyfunc  # noqa: F401

    import codline.report.page  # noqa: F401


def watch(listener: Listener, store: Any, pipeline: Pipeline, cycle: str) -> None:
    """Log epochs until the training ends. While it starts there is time for what the cycle before has left: its query."""
    from codline.tracking.sync import live, sync

    before = pipeline.params["cycles"][cycle]["prev"]
    if before in pipeline.cycles:
        for _ in sync(store, pipeline, [before]):
            pass
    run, seen = None, 0
    while not listener.heard.wait(EVERY):
        note = state_directory.read_note("progress", f"train@{cycle}") or {}
        if len(note.get("curve", [])) > seen:
            run, seen = live(store, pipeline, cycle, note["curve"]), len(note["curve"])
            store.settle(run, "RUNNING")
            listener.waits = True
    if listener.word == "failed" and run is not None:
        store.settle(run, "FAILED")
