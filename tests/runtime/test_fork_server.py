"""A forked process behaves as the process that was asked for, as far as its caller and its files can tell."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codline.runtime.fork_server import SOCKET
from tests.workspace import REPOSITORY

ECHO = """
import json, os, sys
preloaded = "colorsys" in sys.modules
seen = [sys.argv[1:], os.getcwd(), os.environ["WORD"], sys.stdin.read(), preloaded]
print(json.dumps(seen))
sys.stderr.write("to standard error")
sys.exit(int(sys.argv[1]))
"""
SLEEP = "import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
HOLD_GLOBAL_LOCK = "import pathlib, os; pathlib.Path('pid').write_text(str(os.getpid())); 3 ** 100_000_000"  # minutes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a package `stages` of its own, which runs modules as ours does."""
    (tmp_path / "stages").mkdir()
    shutil.copy(REPOSITORY / "stages/__init__.py", tmp_path / "stages")
    shutil.copy(REPOSITORY / "stages/__main__.py", tmp_path / "stages")
    return tmp_path


@pytest.fixture
def server(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "codline.runtime.fork_server", "socket", str(os.getpid()), "colorsys"]
    with (
        (directory / "stderr").open("wb") as stderr,
        subprocess.Popen(command, cwd=directory, env=environment(directory), stderr=stderr) as process,
    ):
        wait_until(lambda: (directory / "socket").exists())
        yield process
        process.kill()


def environment(directory: Path, **changes: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{REPOSITORY}", SOCKET: "socket"} | changes


def run_stage(directory: Path, code: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    (directory / "stages/example.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "stages", "example", *arguments],
        cwd=directory,
        env=environment(directory, **changes),
        input="from standard input",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


@pytest.mark.parametrize("code", [0, 3])
def test_forked_stage_has_the_streams_arguments_directory_environment_and_exit_code_of_a_normal_one(
    directory: Path, server: object, code: int
) -> None:
    normal = run_stage(directory, ECHO, str(code), WORD="x", **{SOCKET: "missing"})
    forked = run_stage(directory, ECHO, str(code), WORD="x")
    assert "false]" in normal.stdout
    assert forked.stdout == normal.stdout.replace("false]", "true]")
    assert (forked.stderr, forked.returncode) == (normal.stderr, normal.returncode) == ("to standard error", code)


def test_forked_stage_runs_the_code_that_its_file_has_now(directory: Path, server: object) -> None:
    assert run_stage(directory, "print('old')").stdout == "old\n"
    assert run_stage(directory, "print('a new one')").stdout == "a new one\n"


def test_forked_stage_runs_the_code_of_the_caller_s_directory(
    directory: Path, server: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(directory / "stages", other / "stages")
    code = "import stages, sys; print(stages.__file__, sys.path[0])"
    output = run_stage(other, code, **{SOCKET: str(directory / "socket")}).stdout
    assert output.split() == [str(other / "stages/__init__.py"), str(other)]


def test_forked_stage_that_raises_prints_the_traceback_and_exits_with_1(directory: Path, server: object) -> None:
    done = run_stage(directory, "import sys; assert 'colorsys' in sys.modules; raise ValueError('no')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no\n")


def test_forked_stage_that_is_killed_looks_killed_to_its_caller(directory: Path, server: object) -> None:
    done = run_stage(directory, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize("victim", ["caller", "server"])
def test_forked_stage_ends_with_its_caller_and_with_the_server(
    directory: Path, server: subprocess.Popen[bytes], victim: str
) -> None:
    (directory / "stages/example.py").write_text(SLEEP)
    command = [sys.executable, "-m", "stages", "example"]
    with subprocess.Popen(command, cwd=directory, env=environment(directory)) as caller:
        wait_until(lambda: (directory / "pid").exists() and (directory / "pid").read_text())
        pid = int((directory / "pid").read_text())
        assert pid != caller.pid
        (caller if victim == "caller" else server).kill()
        wait_until(lambda: has_ended(pid))
        assert caller.wait(20) == -signal.SIGKILL


def test_forked_stage_ends_with_its_caller_even_in_a_call_that_holds_the_global_lock(
    directory: Path, server: object
) -> None:
    (directory / "stages/example.py").write_text(HOLD_GLOBAL_LOCK)
    command = [sys.executable, "-m", "stages", "example"]
    with subprocess.Popen(command, cwd=directory, env=environment(directory)) as caller:
        wait_until(lambda: (directory / "pid").exists() and (directory / "pid").read_text())
        time.sleep(0.5)
        caller.kill()
    wait_until(lambda: has_ended(int((directory / "pid").read_text())), 5)


def test_fork_server_ignores_a_caller_that_dies_while_it_sends_its_request(
    directory: Path, server: subprocess.Popen[bytes]
) -> None:
    with socket.socket(socket.AF_UNIX) as connection, contextlib.chdir(directory):  # the whole path may be too long
        connection.connect("socket")
        socket.send_fds(connection, [(100).to_bytes(4, "big")], [0, 1, 2])
    assert run_stage(directory, "print('still here')").stdout == "still here\n"
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    wait_until(lambda: all(has_ended(int(pid)) for pid in children.read_text().split()))
    assert (directory / "stderr").read_text() == ""


def test_fork_server_ends_with_its_owner(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as owner:
        command = [sys.executable, "-m", "codline.runtime.fork_server", "socket", str(owner.pid)]
        with subprocess.Popen(command, cwd=directory, env=environment(directory)) as process:
            wait_until(lambda: (directory / "socket").exists())
            owner.kill()
            assert process.wait(20) == -signal.SIGKILL


def test_fork_server_s_socket_is_accessible_to_its_user_alone(directory: Path, server: object) -> None:
    assert stat.S_IMODE((directory / "socket").stat().st_mode) == 0o600


def test_runner_refuses_an_unknown_stage_with_one_sentence(directory: Path) -> None:
    command = [sys.executable, "-m", "stages", "trian"]
    done = subprocess.run(
        command, cwd=directory, env=environment(directory), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("codline: found trian, expected a stage of dvc.yaml")
