"""Runs stages through DVC, with one open repository per thread for the whole campaign."""

import contextlib
import logging
import re
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from dvc.exceptions import CacheLinkError, DvcException
from dvc.lock import Lock, LockError, LockNoop
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.stage.exceptions import StageCmdFailedError

from codline.core.errors import (
    BY_EXIT_CODE,
    CodlineError,
    DataError,
    InfrastructureError,
    Stopped,
    StorageError,
    disk_error,
)
from codline.core.files import file_version
from codline.orchestration import dvc_lock, dvc_state
from codline.orchestration.remote_results import RemoteResults
from codline.orchestration.run_cache import RunCache
from codline.runtime import dvc_repair, out_of_memory, stage_snapshot, state_directory
from codline.runtime.pipeline import Pipeline

READ_ATTEMPTS = 3
dvc_state.stop_endless_retries()


class LoggedDiskErrors(logging.Handler):
    """The last disk error that DVC logged instead of raising it.

    If an object cannot be added to DVC's cache, DVC logs the error, goes on, and later fails because it is missing.
    """

    last: StorageError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.last = disk_error(record.exc_info[1]) or self.last


logged_disk_errors = LoggedDiskErrors(logging.ERROR)
for _name in ("dvc", "dvc_data", "dvc_objects"):  # nothing is printed: tasks report what runs, and errors are raised
    _logger = logging.getLogger(_name)
    _logger.handlers, _logger.propagate = [logged_disk_errors], False
    _logger.setLevel(logging.ERROR)


class RepositoryLock(Lock):  # type: ignore[misc]
    """DVC's repository lock, polled every 20 ms. DVC polls every half second, as long as a small stage runs."""

    def lock(self) -> None:
        while True:
            try:
                self._do_lock()
                return
            except LockError:
                time.sleep(0.02)
            except OSError as error:  # its traceback would keep the lock file open, and so locked for other threads
                failure = OSError(error.errno, error.strerror, self.lockfile)
                break
        raise failure


class DvcStages(threading.local):
    """Stages of the open repository by name. Loading them takes a quarter of a second, so every thread does it once.

    `shares_results`: through the DVC remote, with other machines.
    """

    def __init__(self, shares_results: bool = False) -> None:
        self.shares_results = shares_results
        self.load()

    def reload(self) -> None:
        self.repo.close()
        self.load()

    def load(self) -> None:
        self.loaded_files = pipeline_files()
        with dvc_errors():
            self.repo = Repo()
            self.repo.lock = RepositoryLock(self.repo.lock.lockfile)
            remote = RemoteResults(self.repo) if self.shares_results else None
            self.run_cache = self.repo.stage_cache = RunCache(self.repo, remote)
            self.stages: dict[str, PipelineStage] = {stage.addressing: stage for stage in self.repo.index.stages}

    def reproduce(self, name: str) -> bool:
        """Bring one stage up to date; returns whether it had to run."""
        if self.loaded_files != pipeline_files():  # commands and dependencies of stages contain parameters
            self.reload()
        if name not in self.stages:
            raise DataError(f"{name}: no such stage in dvc.yaml")
        state_directory.delete_note(stage_snapshot.NOTE, name)  # of an earlier run
        kernel_kills = out_of_memory.kernel_kills()
        try:
            with self.repo.lock:
                has_run = dvc_lock.reproduce_and_record(self.stages[name], self.run_cache.objects)
            self.run_cache.send(self.stages[name])
            return has_run
        except CodlineError:
            self.reload()  # DVC's stage now has the hashes of a result that is not recorded
            raise
        except StageCmdFailedError as error:
            raise stage_failure(name, error, kernel_kills) from error
        except LockError as error:
            raise InfrastructureError(f"{name}: another DVC command holds this repository") from error
        except DvcException as error:
            raise logged_disk_errors.last or dvc_failure(name, error) from error
        except OSError as error:  # such as of an object that is missing
            if logged_disk_errors.last is None:
                raise
            raise logged_disk_errors.last from error


@contextlib.contextmanager
def dvc_errors() -> Iterator[None]:
    """For example of a dvc.lock or params.yaml that DVC cannot read."""
    try:
        yield
    except DvcException as error:
        raise DataError(" ".join(str(error).split())) from error


def dvc_failure(name: str, error: DvcException) -> CodlineError:
    if isinstance(error, CacheLinkError):  # DVC has also tried to copy a file of four bytes, and does not tell why
        found = "an output can neither be linked nor copied from DVC's cache"
        return StorageError(f"{name}: {found}; check the disk and DVC's setting cache.type, and run it again")
    return DataError(f"{name}: {' '.join(str(error).split())}")


def pipeline_files() -> list[str]:
    return [file_version(name) for name in ("dvc.yaml", "params.yaml")]


def stage_failure(name: str, error: StageCmdFailedError, kernel_kills: int) -> CodlineError:
    """The error that the stage reported in its note; without a note, it was killed or could not write one.

    `kernel_kills`: how many processes the kernel had killed for lack of memory when the stage started.
    """
    note = state_directory.read_note("error", name)
    if note is not None:
        return BY_EXIT_CODE.get(note["exit_code"], CodlineError)(f"{name}: {note['sentence']}")
    if re.search(r"exited with (130|-2)$", str(error)):  # interrupted before it could report
        return Stopped()
    if str(error).endswith(f"exited with {StorageError.exit_code}"):
        return StorageError(f"{name}: the disk is full, read-only or failing; make room on it and run it again")
    if re.search(r"exited with (137|-9)$", str(error)):
        advice = out_of_memory.advice(name.partition("@")[0], Path("params.yaml"))
        if out_of_memory.kernel_kills() > kernel_kills:  # it would be killed again, so it is not retried
            return CodlineError(f"{name}: out of memory, so the kernel killed it; {advice}")
        return InfrastructureError(f"{name}: the stage was killed; if memory was short, {advice}")
    return InfrastructureError(f"{name}: the stage was killed or timed out ({error})")


def restore_outputs(names: list[str]) -> None:
    """Get the outputs that dvc.lock lists for these stages from DVC's cache, as far as there are any."""
    targets = [name for name in names if name in Pipeline().stage_names()]
    if dvc_lock.LOCK.exists() and targets:
        with contextlib.suppress(DvcException), Repo() as repo:
            repo.checkout(targets=targets, force=True, allow_missing=True)


def stale_stages(*, follow: bool = False) -> list[str]:
    """Stages of the campaign that DVC would run; with `follow`, also all that depend on one of them.

    Works while a stage runs.
    DVC checks each stage by itself: after a change of the dataset only prepare is stale, while the results of every
    cycle are still those of the other dataset.
    """
    names = Pipeline().stage_names()
    if not dvc_lock.LOCK.exists():
        return names
    dvc_repair.repair()
    for _ in range(READ_ATTEMPTS - 1):
        with contextlib.suppress(DataError):  # while a stage runs, files may vanish or be half written
            return read_stale_stages(names, follow)
        time.sleep(0.2)
    return read_stale_stages(names, follow)


def read_stale_stages(names: list[str], follow: bool) -> list[str]:
    try:
        with reading_repository() as repo:
            stale = repo.status()
            return with_followers(repo, names, stale) if follow else [name for name in stale if name in names]
    except (DvcException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"DVC cannot tell which stages are up to date: {reason}") from error


@contextlib.contextmanager
def reading_repository() -> Iterator[Repo]:
    """A repository to read only, without DVC's locks: it neither waits for a running stage nor holds one up."""
    with Repo() as repo, tempfile.TemporaryDirectory() as folder:
        repo.lock, repo.tmp_dir = LockNoop(), folder  # DVC notes in tmp_dir which files it is reading
        yield repo


def with_followers(repo: Repo, names: list[str], stale: Collection[str]) -> list[str]:
    """`names` is in the order in which stages run, so that a stage comes after those that it follows from."""
    stages = {stage.addressing: stage for stage in repo.index.stages}
    outdated: list[str] = []
    for name in names:
        earlier = (stage.addressing for stage in repo.index.graph.successors(stages[name]))
        if name in stale or any(each in outdated for each in earlier):
            outdated.append(name)
    return outdated


def remove_outdated_cycles() -> None:
    """Remove the results of cycles that are not current, or report would show them as this campaign's."""
    outdated = {name for name in stale_stages(follow=True) if "@" in name}
    dvc_lock.keep_stages([name for name in Pipeline().stage_names() if name not in outdated])
