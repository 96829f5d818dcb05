"""Background processes that stages share: the fork server, and the follower that logs to MLflow.

`codline run` starts them with `Background` and stops them when the campaign ends. Under a plain `dvc repro` the first
stage starts them (`start_for_dvc`), and they end by themselves when DVC does.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

from codline.core.locks import file_lock
from codline.runtime import fork_server
from codline.runtime.dvc_repair import back_up_lock
from codline.runtime.process_lifetime import OWNER, ancestors
from codline.runtime.state_directory import state_root

FOLLOWER_SECONDS = 60.0  # that a finished campaign waits for MLflow
BUSY = "another campaign (process {owner}) is running in this directory; wait for it or stop it"
LOG = "tracking.log"  # in the state directory: what the follower could not log


def is_tracking() -> bool:
    return os.environ.get("CODLINE_TRACKING") != "off"


def campaign_lock() -> Path:
    """Held by the process that runs a campaign in this directory."""
    return state_root() / "campaign.lock"


def start_for_dvc() -> None:
    """In a stage that DVC runs and no campaign owns: start what is not running yet. DVC is the owner.

    Refuses the stage beside a campaign, which would meet files that change under it. If DVC is killed, the fork server
    repairs the files that DVC was writing.
    """
    if "DVC_STAGE" not in os.environ or OWNER in os.environ:
        return
    with file_lock(campaign_lock(), busy=BUSY):
        pass
    if sys.platform != "linux":
        return
    back_up_lock()
    dvc = ancestors()[-1]
    if not fork_server.socket_path(dvc).exists():
        fork_server.start(dvc)
        if is_tracking():
            start_follower("--owner", str(dvc))


def start_follower(*arguments: str) -> subprocess.Popen[bytes]:
    """Its messages go to a file: a pipe that it keeps open would delay a reader of DVC's output."""
    command = [sys.executable, "-m", "codline.tracking", "follow", *arguments]
    path = state_root() / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    with path.open("ab") as log:  # "ab": an earlier follower may still be writing
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, bufsize=0)


class Background:
    """The processes of one campaign, started with its first stage."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: subprocess.Popen[bytes] | None = None
        self.follower: subprocess.Popen[bytes] | None = None

    def start_server(self) -> None:
        """Unless there is one already: its socket is in the environment."""
        with self.lock:
            if self.server is None and fork_server.SOCKET not in os.environ:
                self.server = fork_server.start(os.getpid())
                os.environ[fork_server.SOCKET] = str(fork_server.socket_path(os.getpid()))

    def start_follower(self) -> None:
        with self.lock:
            if self.follower is None and is_tracking():
                self.follower = start_follower()

    def stop(self, seconds: float = FOLLOWER_SECONDS) -> str:
        """Let the follower finish, for at most `seconds`, and end the server. Returns what MLflow has not been sent."""
        message = self.finish_follower(seconds) if self.follower is not None else ""
        if self.server is not None:
            path = Path(os.environ.pop(fork_server.SOCKET))
            self.server.kill()  # its children end with it
            self.server.wait()
            path.unlink(missing_ok=True)
        self.server = self.follower = None
        return message

    def finish_follower(self, seconds: float) -> str:
        assert self.follower is not None
        try:
            self.follower.communicate(b"finish\n", seconds)
        except subprocess.TimeoutExpired:
            self.follower.kill()
            self.follower.wait()
            return f"MLflow took longer than {seconds:.0f} s; run `codline track` later"
        return (state_root() / LOG).read_text(encoding="utf-8", errors="replace").strip()
