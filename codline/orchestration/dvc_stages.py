"""Runs stages through DVC, with one open repository per thread for the whole campaign."""

import logging
import re
import threading
import time
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.lock import Lock, LockError
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.stage.exceptions import StageCmdFailedError

from codline.core.errors import BY_EXIT_CODE, CodlineError, DataError, InfrastructureError, Stopped
from codline.core.locks import file_lock
from codline.orchestration import dvc_lock
from codline.orchestration.run_cache import RunCache
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline

logging.getLogger("dvc").setLevel(logging.WARNING)  # tasks report what runs


class RepositoryLock(Lock):  # type: ignore[misc]
    """DVC's repository lock, polled every 20 ms. DVC polls every half second, as long as a small stage runs."""

    def lock(self) -> None:
        while True:
            try:
                return self._do_lock()  # type: ignore[no-any-return]
            except LockError:
                time.sleep(0.02)


class DvcStages(threading.local):
    """Stages of the open repository by name. Loading them takes a quarter of a second, so every thread does it once."""

    def __init__(self) -> None:
        self.repo = Repo()
        self.repo.lock = RepositoryLock(self.repo.lock.lockfile)
        self.repo.stage_cache = RunCache(self.repo)
        self.stages: dict[str, PipelineStage] = {stage.addressing: stage for stage in self.repo.index.stages}

    def reproduce(self, name: str) -> bool:
        """Bring one stage up to date; returns whether it had to run."""
        if name not in self.stages:
            raise DataError(f"{name}: no such stage in dvc.yaml")
        try:
            with self.repo.lock:
                return dvc_lock.reproduce_and_record(self.stages[name])
        except StageCmdFailedError as error:
            raise stage_failure(name, error) from error
        except LockError as error:
            raise InfrastructureError(f"{name}: another DVC command holds this repository") from error
        except DvcException as error:
            raise DataError(f"{name}: {' '.join(str(error).split())}") from error


def stage_failure(name: str, error: StageCmdFailedError) -> CodlineError:
    """The error that the stage reported in its note; without a note, it was killed."""
    note = state_directory.read_note("error", name)
    if note is not None:
        return BY_EXIT_CODE.get(note["exit_code"], CodlineError)(f"{name}: {note['sentence']}")
    if re.search(r"exited with (130|-2)$", str(error)):  # interrupted before it could report
        return Stopped()
    return InfrastructureError(f"{name}: the stage was killed or timed out ({error})")


def stale_stages() -> list[str]:
    """Stages of the campaign that DVC would run."""
    names = Pipeline().stage_names()
    if not dvc_lock.LOCK.exists():
        return names
    refuse_if_locked()
    dvc_lock.repair()
    with Repo() as repo:
        return [name for name in repo.status() if name in names]


def refuse_if_locked() -> None:
    """Fail at once if another DVC command holds the repository, instead of waiting for it silently."""
    path = Path(".dvc/tmp/lock")
    if path.exists():
        busy = "another DVC command (process {owner}) holds .dvc/tmp/lock; wait for it or stop it"
        with file_lock(path, busy=busy):
            pass
