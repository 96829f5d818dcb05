"""Logs a running campaign to MLflow from its files: epochs as they are trained, results once dvc.lock records them.

One process per campaign, which computes nothing for it. While MLflow cannot be reached, stages go on and the follower
tries again; what is still missing at the end is left to `codline track`. Logging twice changes nothing, so two
followers (of one `dvc repro` that has just ended, and of the next) do not disturb each other.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from codline.core.errors import CodlineError, DataError
from codline.runtime import stage_snapshot, state_directory
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import wait_for_death
from codline.tracking.address import unreachable
from codline.tracking.lock_status import LockStatus

CONNECT_SECONDS = 20.0  # after the end of the campaign, to reach MLflow: some databases are tried for minutes
POLL_SECONDS = 0.5
RETRY_SECONDS = 30.0  # after an error, while the campaign runs
LOGGED_STAGES = {"train", "select", "evaluate", "diagnose"}  # the others have nothing to log


class EndOfCampaign(threading.Thread):
    """Waits for the end of the campaign: a line on standard input, or the end of the process `owner`.

    If standard input closes without that line, the campaign was killed, and this process ends at once.
    """

    def __init__(self, owner: int | None) -> None:
        super().__init__(daemon=True)
        self.owner, self.reached, self.connected = owner, threading.Event(), False

    def run(self) -> None:
        if self.owner is not None:
            wait_for_death(self.owner)
        elif not sys.stdin.readline():
            os._exit(0)
        self.reached.set()
        threading.Timer(CONNECT_SECONDS, self.give_up).start()

    def give_up(self) -> None:
        if not self.connected:
            leave(str(unreachable(f"for {CONNECT_SECONDS:.0f} s")))


def follow(owner: int | None = None) -> NoReturn:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")  # MLflow's default is two minutes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the campaign too, which then ends this process
    end = EndOfCampaign(owner)
    end.start()
    leave(log_campaign(end))


def leave(message: str) -> NoReturn:
    """Exit without waiting for the libraries' clean-up."""
    with contextlib.suppress(OSError):  # a full disk, which the campaign reports
        sys.stderr.write(f"{message}\n" if message else "")
        sys.stderr.flush()
    os._exit(0)


def log_campaign(end: EndOfCampaign) -> str:
    """Log until the end of the campaign; returns why something is missing, if so."""
    while True:
        try:
            log_until(end)
            return ""
        except CodlineError as error:  # MLflow is unreachable, or a file was just being replaced
            if end.reached.is_set():
                return str(error)
            end.connected = False
            end.reached.wait(RETRY_SECONDS)
        except Exception as error:
            reason = f"unexpected {type(error).__name__}: {error}"
            return f"not everything was logged to MLflow: {reason}; run `codline track` later"


def log_until(end: EndOfCampaign) -> None:
    from codline.tracking.store import MlflowStore, mlflow_errors  # imports mlflow: seconds
    from codline.tracking.sync import exclusive

    with mlflow_errors():
        with exclusive():
            store = MlflowStore()
        end.connected, is_last, params_version = True, False, None
        while not is_last:
            is_last = end.reached.wait(POLL_SECONDS)
            if params_version != (params_version := file_version(Path("params.yaml"))):
                pipeline = Pipeline()
                epochs, results = EpochLog(store, pipeline), ResultLog(store, pipeline)
            epochs.update()
            results.update(is_last)


class EpochLog:
    """Logs the epochs of running trainings, from the progress notes of the train stages."""

    def __init__(self, store: Any, pipeline: Pipeline) -> None:
        self.store, self.pipeline, self.logged = store, pipeline, dict[str, int]()

    def update(self) -> None:
        from codline.tracking.sync import log_epochs

        for cycle in self.pipeline.cycles:
            epochs = self.epochs(cycle)
            if len(epochs) not in (0, self.logged.get(cycle)):
                log_epochs(self.store, self.pipeline, cycle, epochs, "RUNNING")
                self.logged[cycle] = len(epochs)
            elif cycle in self.logged and state_directory.read_note("error", f"train@{cycle}"):
                log_epochs(self.store, self.pipeline, cycle, epochs, "FAILED")
                del self.logged[cycle]

    def epochs(self, cycle: str) -> list[dict[str, Any]]:
        """The epochs of a training with the parameters of now: a kill may have left the note of an earlier one."""
        path = state_directory.note_path("progress", f"train@{cycle}")
        if file_version(path) < file_version(Path("params.yaml")):
            return []
        snapshot = stage_snapshot.read_snapshot(f"train@{cycle}")
        if snapshot is not None and snapshot.changed_param():  # edited while it runs: it will be refused
            return []
        epochs: list[dict[str, Any]] = (state_directory.read_note("progress", f"train@{cycle}") or {}).get("curve", [])
        return epochs


class ResultLog:
    """Logs the results of a stage once dvc.lock records them."""

    def __init__(self, store: Any, pipeline: Pipeline) -> None:
        self.store, self.pipeline = store, pipeline
        self.logged = dict[str, Any]()  # {stage: entry in dvc.lock}
        self.version = (0, 0)

    def update(self, is_last: bool) -> None:
        from codline.tracking.sync import sync

        version = file_version(self.pipeline.root / "dvc.lock")
        if version == self.version and not is_last:
            return
        try:
            lock = LockStatus(self.pipeline, recorded_only=True)
        except DataError:
            if is_last:
                raise
            return  # DVC is writing the file
        names = [name for name in lock.stages if name.partition("@")[0] in LOGGED_STAGES and lock.is_current(name)]
        changed = {name.partition("@")[2] for name in names if self.logged.get(name) != lock.stages[name]}
        if changed or is_last:
            cycles = [cycle for cycle in self.pipeline.cycles if is_last or cycle in changed]
            for _ in sync(self.store, self.pipeline, cycles, lock):
                pass
        self.logged |= {name: lock.stages[name] for name in names}
        self.version = version


def file_version(path: Path) -> tuple[int, int]:
    """Changes whenever the file does: modification time (of a missing file, 0) and size."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
