"""A user's clone: a real git and DVC repository, with real commands run in it."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from codline.core import params
from codline.orchestration.params_file import set_value
from codline.runtime import fork_server
from tests.workspace import REPOSITORY, SMALL_PARAMS

BIN = Path(sys.executable).parent
TINY = SMALL_PARAMS | {"train.epochs": 2} | params.cycle_chain(2)


class Project:
    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        ours = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "COLUMNS": "160",
            "TERM": "dumb",
        }
        not_ours = ("CODLINE_FORK_SERVER", "CODLINE_OWNER", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # these tests may run under make
        plain = {key: value for key, value in os.environ.items() if key not in not_ours}
        self.environment = plain | ours | environment

    def start(self, *words: str) -> subprocess.Popen[str]:
        """In a session of its own, so that a test can look for what it leaves behind; what it says is in said.txt."""
        with (self.root.parent / "said.txt").open("w") as said:
            return subprocess.Popen(
                words,
                cwd=self.root,
                env=self.environment,
                text=True,
                start_new_session=True,
                stdout=said,
                stderr=said,
                preexec_fn=hears_ctrl_c,
            )

    @property
    def said(self) -> str:
        """By what was started last."""
        return (self.root.parent / "said.txt").read_text()

    def run(self, *words: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.root, env=self.environment, text=True, capture_output=True, timeout=timeout, check=False
        )

    def must(self, *words: str, timeout: float = 280) -> str:
        done = self.run(*words, timeout=timeout)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def lock(self) -> bytes:
        return (self.root / "dvc.lock").read_bytes()

    def having(self, **environment: str) -> "Project":
        return Project(self.root, **self.environment | environment)

    def copied(self, root: Path) -> "Project":
        shutil.copytree(self.root, root, symlinks=True, ignore=shutil.ignore_patterns("campaign.lock"))
        return Project(
            root,
            **{key: value for key, value in self.environment.items() if key != "PYTHONPATH"}
            | {"PYTHONPATH": str(root)},
        )


@contextlib.contextmanager
def running_fork_server(path: Path) -> Iterator[dict[str, str]]:
    """Start a fork server that belongs to the tests; yield the environment in which stages use it."""
    if sys.platform != "linux":
        yield {}
        return
    settings = os.environ | {"PYTHONPATH": ""}
    with subprocess.Popen(
        [sys.executable, "-m", "codline.runtime.fork_server", str(path), str(os.getpid()), *fork_server.PRELOADED],
        cwd=REPOSITORY,
        env=settings,
    ) as process:
        try:
            yield {fork_server.SOCKET: str(path)}
        finally:
            process.kill()


def hears_ctrl_c() -> None:
    """A shell that runs these tests in the background has it ignored, in all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def cloned(root: Path, **environment: str) -> Project:
    """The repository's files as a fresh clone, with a small campaign in params.yaml and nothing made yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file() and name != "dvc.lock":
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, root / name)
    raw = YAML().load((root / "params.yaml").read_text())
    for key, value in TINY.items():
        set_value(raw, key, value)
    with (root / "params.yaml").open("w") as file:
        YAML().dump(raw, file)
    project = Project(root, **environment)
    project.must("git", "init", "-q")
    project.must("git", "add", "-A")
    project.must("git", "config", "user.name", "test")  # dvc exp run asks for one
    project.must("git", "config", "user.email", "test@localhost")
    project.must("git", "commit", "-qm", "start")
    return project


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder for all workers, read only: made by whoever comes first, and the others wait."""
    here = factory.getbasetemp()
    folder = (here.parent if "PYTEST_XDIST_WORKER" in os.environ else here) / name
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not folder.with_suffix(".done").exists():
            make(folder)
            folder.with_suffix(".done").touch()
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def survivors(root: Path) -> list[str]:
    """Commands of living processes that work in this directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == root and "Z" not in (process / "stat").read_text().rpartition(")")[
                2
            ].split()[0]:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return found


def killed(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
