"""A process ends when its parent or its owner dies, however early that is."""

import os
import signal
import subprocess
import sys

import pytest

from codline.runtime.process_lifetime import is_alive
from tests.workspace import REPOSITORY

WATCHING = """
import time
from codline.runtime.process_lifetime import end_with_parents
end_with_parents()
print("watching", flush=True)
time.sleep(30)
"""


def start_watching_process(owner: int) -> subprocess.Popen[str]:
    environment = os.environ | {"CODLINE_OWNER": str(owner), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", WATCHING], env=environment, stdout=subprocess.PIPE, text=True)


def test_end_with_parents_kills_a_process_whose_owner_is_dead_already() -> None:
    owner = subprocess.Popen([sys.executable, "-c", ""])
    owner.wait()
    with start_watching_process(owner.pid) as process:
        assert process.wait(10) == -signal.SIGKILL


def test_end_with_parents_kills_a_process_when_its_owner_dies() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as owner,
        start_watching_process(owner.pid) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        assert process.poll() is None
        owner.kill()
        owner.wait()
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_process_that_has_ended_is_not_alive_before_its_parent_asks() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        assert is_alive(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(process.pid)
