"""Deployments to a work pool: refused unless the commit can be cloned and somebody runs what is sent there."""

import subprocess
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate

from codline.core.errors import DataError, InfrastructureError, UserError
from codline.orchestration.work_pool import CommittedCode, check_pool, deployment_name, pushed_code, require_worker


def git(*words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a commit that has been pushed, as the current directory."""
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.chdir(root)
    git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "start")
    git("remote", "add", "origin", str(tmp_path / "remote.git"))
    git("push", "-q", "origin", "HEAD:main")
    return root


def test_pushed_code_is_the_last_commit_and_where_it_is(repository: Path) -> None:
    assert pushed_code() == CommittedCode(str(repository.parent / "remote.git"), git("rev-parse", "HEAD"))


def test_pushed_code_refuses_a_commit_that_no_remote_has(repository: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "next")
    with pytest.raises(UserError, match=r"^commit \w{10} is on no branch of origin, so no worker can clone"):
        pushed_code()
    git("remote", "remove", "origin")
    with pytest.raises(UserError, match=r"^git has no remote from which a worker could clone this repository"):
        pushed_code()


def test_pushed_code_refuses_changes_that_are_not_committed(repository: Path) -> None:
    (repository / "dvc.yaml").touch()
    with pytest.raises(UserError, match=r"^dvc\.yaml: not committed as it is"):
        pushed_code()


def test_pushed_code_refuses_a_password_in_the_address(repository: Path) -> None:
    git("remote", "set-url", "origin", "https://me:s3cret@example.com/codline.git")
    with pytest.raises(UserError, match="the git remote origin contains a password, which Prefect") as caught:
        pushed_code()
    assert "s3cret" not in str(caught.value)


def test_pushed_code_needs_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^git status: fatal: not a git repository"):
        pushed_code()


def test_deployment_is_named_for_its_pool_and_commit() -> None:
    assert deployment_name("gpu", CommittedCode("", "0123456789abcdef")) == "gpu-0123456789"


@pytest.mark.slow
def test_work_pool_that_is_unknown_paused_or_without_a_worker_is_refused(api: dict[str, str]) -> None:
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="idle", type="process"), overwrite=True)
        client.create_work_pool(WorkPoolCreate(name="containers", type="docker"), overwrite=True)
        check_pool("idle")
        with pytest.raises(InfrastructureError, match=r"^no worker polls the work pool idle; prefect worker start"):
            require_worker("idle")
        with pytest.raises(UserError, match=r"^work pool idel: not found at http.*, which has containers, .*idle.*;"):
            check_pool("idel")
        with pytest.raises(UserError, match=r"^work pool containers: found type docker, expected process"):
            check_pool("containers")
        client.update_work_pool("idle", WorkPoolUpdate(is_paused=True))
        with pytest.raises(InfrastructureError, match=r"^work pool idle is paused; prefect work-pool resume idle"):
            check_pool("idle")
