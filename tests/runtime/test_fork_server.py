"""A forked process is the one that was asked for, in all that its caller and its files can see of it."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workspace import REPOSITORY

ECHO = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "word": os.environ["WORD"], "in": sys.stdin.read(), "early": "colorsys" in sys.modules}))
sys.stderr.write("aside")
sys.exit(int(sys.argv[1]))
"""
LONG = "import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm process forks, so it is for Linux")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a package named like one of ours."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/__init__.py").write_text("import codline\n")
    return tmp_path


@pytest.fixture
def warm(here: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "codline.runtime.fork_server", "door", "colorsys"], cwd=here, env=environment(here)
    ) as process:
        wait_until(lambda: (here / "door").exists())
        yield process
        process.kill()


def environment(here: Path, **more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{REPOSITORY}"} | more


def asked(here: Path, code: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    (here / "stages/word.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "stages.word", *arguments],
        cwd=here,
        env=environment(here, **({"CODLINE_WARM": "door"} | more)),
        input="heard",
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


def gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


@pytest.mark.parametrize("code", [0, 3])
def test_streams_arguments_folder_environment_and_exit_code_are_the_caller_s(
    here: Path, warm: object, code: int
) -> None:
    plain = asked(here, ECHO, str(code), WORD="x", CODLINE_WARM="nobody")
    forked = asked(here, ECHO, str(code), WORD="x")
    assert '"early": false' in plain.stdout
    assert forked.stdout == plain.stdout.replace('"early": false', '"early": true')
    assert (forked.stderr, forked.returncode) == (plain.stderr, plain.returncode) == ("aside", code)


def test_what_runs_is_what_the_file_says_now(here: Path, warm: object) -> None:
    assert asked(here, "print('old')").stdout == "old\n"
    assert asked(here, "print('a new one')").stdout == "a new one\n"


def test_what_runs_is_the_code_of_the_caller_s_folder(
    here: Path, warm: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("there")
    shutil.copytree(here / "stages", there / "stages")
    assert asked(here, "print('here')").stdout == "here\n"
    assert asked(
        there, "import stages, sys; print('there', stages.__file__, sys.path[0])", CODLINE_WARM=str(here / "door")
    ).stdout.split() == [
        "there",
        str(there / "stages/__init__.py"),
        str(there),
    ]


@pytest.mark.parametrize(("package", "early"), [("stages", True), ("flows", False)])
def test_only_stages_and_what_stands_beside_them_are_forked(
    here: Path, warm: object, package: str, early: bool
) -> None:
    (here / package).mkdir(exist_ok=True)
    (here / package / "__init__.py").write_text("import codline\n")
    (here / package / "looked.py").write_text("import sys; print('colorsys' in sys.modules)")
    done = subprocess.run(
        [sys.executable, "-m", f"{package}.looked"],
        cwd=here,
        env=environment(here, CODLINE_WARM="door"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(early)]


def test_an_exception_is_shown_and_ends_with_one(here: Path, warm: object) -> None:
    done = asked(here, "import sys; assert 'colorsys' in sys.modules; raise ValueError('no')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no\n")


def test_a_killed_process_looks_killed_to_the_caller(here: Path, warm: object) -> None:
    assert asked(here, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)").returncode == -signal.SIGTERM


@pytest.mark.parametrize("victim", ["caller", "warm"])
def test_nobody_outlives_the_caller_or_the_warm_process(here: Path, warm: subprocess.Popen[bytes], victim: str) -> None:
    (here / "stages/word.py").write_text(LONG)
    with subprocess.Popen(
        [sys.executable, "-m", "stages.word"], cwd=here, env=environment(here, CODLINE_WARM="door")
    ) as caller:
        wait_until(lambda: (here / "pid").exists() and (here / "pid").read_text())
        pid = int((here / "pid").read_text())
        assert pid != caller.pid
        (caller if victim == "caller" else warm).kill()
        wait_until(lambda: gone(pid))
        assert caller.wait(20) == -signal.SIGKILL


def test_other_users_cannot_reach_it(here: Path, warm: object) -> None:
    assert stat.S_IMODE((here / "door").stat().st_mode) == 0o600
