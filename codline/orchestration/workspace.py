"""The directory of a campaign: one campaign at a time, with its background processes and its DVC repository."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from codline.core.errors import CodlineError
from codline.core.locks import file_lock
from codline.core.project_root import require_project_root
from codline.orchestration import dvc_activity
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.remote_results import check_remote
from codline.runtime import dvc_repair
from codline.runtime.background import BUSY, Background, campaign_lock
from codline.runtime.process_lifetime import OWNER
from codline.runtime.recorded_outputs import CAMPAIGN

INTERRUPTED_SECONDS = 10.0  # that a campaign which failed or was stopped waits for MLflow
CONCURRENT_STAGES = 4
SCAN = "scan@"


class Workspace:
    """The workspace of this process while it runs a campaign. `shares_results`: through the DVC remote."""

    def __init__(self, shares_results: bool) -> None:
        self.shares_results = shares_results
        self.background = Background()
        self.threads = ThreadPoolExecutor(CONCURRENT_STAGES)
        self.dvc: DvcStages | None = None
        self.checked_params: bytes | None = None  # the params.yaml that was found valid
        self.running: list[Future[bool]] = []
        self.succeeded: list[str] = []  # stages that had to run
        self.failed: list[str] = []

    def reproduce(self, stage: str) -> bool:
        """Bring one stage up to date; returns whether it had to run.

        In a thread: in the main one DVC would ignore Ctrl-C while a stage runs, and a stage that starts may miss it.
        """
        future = self.threads.submit(self.reproduce_here, stage)
        self.running.append(future)
        return future.result()

    def reproduce_here(self, stage: str) -> bool:
        self.background.start_server()
        self.background.start_follower()
        if self.dvc is None:
            self.dvc = DvcStages(self.shares_results)
        try:
            has_run = self.dvc.reproduce(stage)
        except CodlineError:
            self.failed.append(stage)
            raise
        if has_run:
            self.succeeded.append(stage)
        return has_run

    def refused_stages(self) -> list[str]:
        """The stages that have run, if one has failed and none but scans have succeeded; else none.

        A scan reads nothing but an input's files, so it cannot tell whether a dataset accepts them. Waits for stages
        that are running.
        """
        wait(self.running)
        only_scans = all(stage.startswith(SCAN) for stage in self.succeeded)
        return self.succeeded + self.failed if self.failed and only_scans else []

    def close(self, completed: bool) -> str:
        self.threads.shutdown()
        return self.background.stop() if completed else self.background.stop(INTERRUPTED_SECONDS)


_current: Workspace | None = None


@contextlib.contextmanager
def open_workspace(shares_results: bool = False) -> Iterator[Workspace]:
    """Hold the workspace; a flow inside another one has the same. The lock ends with the process, however it dies."""
    global _current
    if _current is not None:
        yield _current
        return
    require_project_root()
    with file_lock(campaign_lock(), busy=BUSY, write_owner=True):
        dvc_activity.refuse_other_commands()
        dvc_repair.repair()
        if shares_results:
            check_remote()
        os.environ |= {OWNER: str(os.getpid()), CAMPAIGN: f"{os.getpid()}-{time.time_ns()}"}
        _current = workspace = Workspace(shares_results)
        completed = False
        try:
            yield workspace
            completed = True
        finally:
            _current = None
            message = workspace.close(completed)
            del os.environ[OWNER], os.environ[CAMPAIGN]
            if message:
                sys.stderr.write(f"codline: {message}\n")


def reproduce(stage: str) -> bool:
    """Bring one stage of the open workspace up to date; returns whether it had to run."""
    assert _current is not None, "reproduce is called inside open_workspace()"
    return _current.reproduce(stage)
