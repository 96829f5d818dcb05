"""No process outlives its parent, nor the flow that owns it, however early they die."""

import os
import signal
import subprocess
import sys

from tests.workspace import REPOSITORY

WATCH = "import time; from codline.runtime.process_lifetime import watch; watch(); print('watching', flush=True); time.sleep(30)"


def started(owner: int) -> subprocess.Popen[str]:
    settings = os.environ | {"CODLINE_OWNER": str(owner), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", WATCH], env=settings, stdout=subprocess.PIPE, text=True)


def test_a_process_whose_owner_is_dead_already_ends_at_once() -> None:
    owner = subprocess.Popen([sys.executable, "-c", ""])
    owner.wait()
    with started(owner.pid) as process:
        assert process.wait(10) == -signal.SIGKILL


def test_a_process_ends_when_its_owner_dies() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as owner,
        started(owner.pid) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        assert process.poll() is None
        owner.kill()
        owner.wait()
        assert process.wait(10) == -signal.SIGKILL
