"""A user's clone: a real git and DVC repository, in which tests run real commands."""

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
from codline.runtime.process_lifetime import OWNER
from tests.workspace import REPOSITORY, SMALL_PARAMS

BIN = Path(sys.executable).parent
SMALL_CAMPAIGN = SMALL_PARAMS | {"train.epochs": 2} | params.cycle_chain(2)


class Project:
    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        ours = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "COLUMNS": "160",
            "TERM": "dumb",
        }
        # The tests may run under make, or inside a campaign.
        removed = (fork_server.SOCKET, OWNER, "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        inherited = {key: value for key, value in os.environ.items() if key not in removed}
        self.environment = inherited | ours | environment

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own; its output goes to a file."""
        with (self.root.parent / "output.txt").open("w") as output:
            return subprocess.Popen(
                words,
                cwd=self.root,
                env=self.environment,
                text=True,
                start_new_session=True,
                stdout=output,
                stderr=output,
                preexec_fn=restore_ctrl_c,
            )

    @property
    def output(self) -> str:
        """Output of the command that was started last."""
        return (self.root.parent / "output.txt").read_text()

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

    def without_given_server(self) -> "Project":
        """This project with a Prefect server of its own, not the one of the tests."""
        self.environment = {name: value for name, value in self.environment.items() if not name.startswith("PREFECT_")}
        return self

    def with_environment(self, **environment: str) -> "Project":
        return Project(self.root, **self.environment | environment)

    def copy_to(self, root: Path) -> "Project":
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


def restore_ctrl_c() -> None:
    """A shell that runs the tests in the background makes them, and what they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def copy_repository(root: Path) -> None:
    """Copy the files that git tracks, and those that it does not ignore."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, root / name)


def clone_with_small_campaign(root: Path, **environment: str) -> Project:
    """A fresh clone of the repository, with a small campaign in params.yaml and without dvc.lock and results."""
    copy_repository(root)
    (root / "dvc.lock").unlink()
    raw = YAML().load((root / "params.yaml").read_text())
    for key, value in SMALL_CAMPAIGN.items():
        set_value(raw, key, value)
    with (root / "params.yaml").open("w") as file:
        YAML().dump(raw, file)
    project = Project(root, **environment)
    project.must("git", "init", "-q")
    project.must("git", "add", "-A")
    project.must("git", "config", "user.name", "test")  # needed by dvc exp run
    project.must("git", "config", "user.email", "test@localhost")
    project.must("git", "commit", "-qm", "start")
    return project


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A read-only directory for all test workers, made by the first one that needs it."""
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


def running_processes(root: Path) -> dict[int, str]:
    """{id: command} of the processes whose working directory is `root`."""
    commands = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if (process / "cwd").readlink() == root and state != "Z":
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                commands[int(process.name)] = command
        except OSError:
            continue
    return commands


def running_commands(root: Path) -> list[str]:
    return list(running_processes(root).values())


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
