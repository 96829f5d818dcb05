"""A workspace's Prefect server: one for all its commands, apart from other workspaces, gone after the last command."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from codline.core.errors import BY_EXIT_CODE, BusyError, InfrastructureError, StorageError, UserError
from codline.orchestration.prefect_profile import ServerAccess, read_access
from codline.orchestration.prefect_server import is_answering, running_url
from tests.project import free_port
from tests.workspace import REPOSITORY

pytestmark = pytest.mark.slow

USE_SERVER = """
import os, sys
from codline.core.errors import exit_on_error
from codline.orchestration.prefect_server import local_server
with exit_on_error(), local_server() as api:
    print(api, os.environ["PREFECT_API_AUTH_STRING"], flush=True)
    sys.stdin.read()
"""


class Command:
    """A process that uses the server of a workspace until it is told to end."""

    def __init__(self, workspace: Path, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE_SERVER],
            cwd=workspace,
            env=inherited | {"PYTHONPATH": str(REPOSITORY)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def access(self) -> ServerAccess:
        assert self.process.stdout
        words = self.process.stdout.readline().split()
        assert len(words) == 2, self.process.communicate()[1]
        return ServerAccess(*words)

    def end(self) -> None:
        assert self.process.communicate(timeout=30) == ("", "")
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def error(self) -> tuple[type[Exception], str]:
        output, sentence = self.process.communicate(timeout=60)
        assert (output, sentence.count("\n")) == ("", 1)
        return BY_EXIT_CODE[self.process.returncode], sentence.removeprefix("codline: ").strip()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which a server has run: creating its database takes seconds."""
    workspace = tmp_path_factory.mktemp("workspace")
    shutil.copy(REPOSITORY / "prefect.toml", workspace)
    command = Command(workspace)
    command.access()
    command.end()
    return workspace


@pytest.fixture
def workspaces(database: Path, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes workspaces with a database but without an address."""

    def make(name: str) -> Path:
        shutil.copytree(database, tmp_path / name)
        (tmp_path / name / ".prefect/profiles.toml").unlink()
        return tmp_path / name

    yield make
    for workspace in tmp_path.iterdir():
        wait_until(lambda root=workspace: not is_running(root))


@pytest.fixture
def workspace(workspaces: Callable[[str], Path]) -> Path:
    return workspaces("workspace")


def is_running(workspace: Path) -> bool:
    with contextlib.chdir(workspace):
        return bool(running_url())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_start_has_a_new_secret_at_the_same_port_in_files_of_the_owner_alone(workspace: Path) -> None:
    first = Command(workspace)
    last = first.access()
    assert is_answering(last)
    with contextlib.chdir(workspace):
        assert read_access() == last
    assert (workspace / ".prefect").stat().st_mode & 0o777 == 0o700
    assert (workspace / ".prefect/profiles.toml").stat().st_mode & 0o777 == 0o600
    first.end()
    assert not is_running(workspace)

    again = Command(workspace)
    access = again.access()
    assert (access.url == last.url, access.secret == last.secret) == (True, False)
    assert is_answering(access)
    with pytest.raises(UserError, match="refuses this PREFECT_API_AUTH_STRING"):
        is_answering(last)
    again.end()


def test_port_that_another_process_has_taken_is_left_to_it_and_never_asked(workspace: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.setblocking(False)
        taken = other.getsockname()[1]
        settings = '[profiles.codline]\nPREFECT_API_URL = "http://127.0.0.1:{}/api"\nPREFECT_LOGGING_LEVEL = "DEBUG"\n'
        (workspace / ".prefect/profiles.toml").write_text(settings.format(taken))
        command = Command(workspace)
        access = command.access()
        assert urlsplit(access.url).port != taken
        with pytest.raises(BlockingIOError):
            other.accept()
    assert 'PREFECT_LOGGING_LEVEL = "DEBUG"' in (workspace / ".prefect/profiles.toml").read_text()
    command.end()


def test_commands_of_one_workspace_share_a_server_until_the_last_one_ends(workspace: Path) -> None:
    commands = [Command(workspace) for _ in range(3)]
    (access,) = {command.access() for command in commands}
    starter = next(command for command in commands if server_processes(command.process.pid))
    commands.remove(starter)
    starter.kill()
    commands.pop().end()
    assert is_answering(access)
    commands.pop().kill()
    wait_until(lambda: not is_running(workspace))
    assert not is_answering(access)


def server_processes(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children]


def test_server_of_one_workspace_survives_the_kill_of_another(workspaces: Callable[[str], Path]) -> None:
    one, two = (Command(workspaces(name)) for name in ("one", "two"))
    killed, kept = one.access(), two.access()
    assert killed.url != kept.url
    with pytest.raises(UserError):
        is_answering(ServerAccess(kept.url, killed.secret))
    one.kill()
    wait_until(lambda: not is_answering(killed))
    assert is_answering(kept)
    two.end()


def test_killed_server_is_replaced_by_the_next_command(workspace: Path) -> None:
    first = Command(workspace)
    last = first.access()
    (server,) = server_processes(first.process.pid)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not is_running(workspace))
    second = Command(workspace)
    access = second.access()
    assert is_answering(access)
    assert access.secret != last.secret
    first.end()
    second.end()


def test_given_address_on_this_machine_gets_a_server_with_the_given_secret(workspace: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/api"
    given = ServerAccess(url, "user:secret")
    commands = [Command(workspace, PREFECT_API_URL=url, PREFECT_API_AUTH_STRING=given.secret) for _ in range(2)]
    assert {command.access() for command in commands} == {given}
    assert is_answering(given)
    later = Command(workspace, PREFECT_API_URL=url)  # without the secret, which the profile has
    assert later.access() == given
    for command in (*commands, later):
        command.end()


def test_given_server_is_used_as_it_is(workspace: Path, workspaces: Callable[[str], Path]) -> None:
    command = Command(workspace)
    access = command.access()
    elsewhere = workspaces("elsewhere")
    given = Command(elsewhere, PREFECT_API_URL=access.url, PREFECT_API_AUTH_STRING=access.secret)
    assert given.access() == access
    given.end()
    assert not (elsewhere / ".prefect/profiles.toml").exists()
    assert Command(elsewhere, PREFECT_API_URL=access.url).error() == (
        UserError,
        f"the Prefect server at {access.url} demands a PREFECT_API_AUTH_STRING",
    )
    other = f"http://127.0.0.1:{free_port()}/api"
    assert Command(workspace, PREFECT_API_URL=other).error() == (
        BusyError,
        f"this workspace's Prefect server is at {access.url}; stop it or unset PREFECT_API_URL",
    )
    command.end()


def test_directory_that_cannot_be_made_private_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".prefect").touch()
    assert Command(tmp_path).error() == (
        StorageError,
        ".prefect: cannot be used (File exists); it must be a directory of your own",
    )


def test_given_server_elsewhere_that_does_not_answer_is_one_sentence(workspace: Path) -> None:
    url = f"https://127.0.0.1:{free_port()}/api"
    assert Command(workspace, PREFECT_API_URL=url).error() == (
        InfrastructureError,
        f"the Prefect server at {url} (PREFECT_API_URL) does not answer",
    )
