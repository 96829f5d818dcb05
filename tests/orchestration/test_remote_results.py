"""Results in the DVC remote: what one machine has computed, another restores; errors are one sentence."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dvc.repo import Repo

from codline.core.errors import CodlineError, InfrastructureError, UserError
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.remote_results import RemoteResults, check_remote
from codline.orchestration.worker_clone import forget_lock, prepare_clone
from tests.project import BIN, free_port

PIPELINE = """stages:
  double:
    cmd: echo run >> ../runs && cat single single > double && mkdir -p folder && cp single folder/copy
    deps: [single]
    outs: [double, folder]
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Enters a new DVC repository with one stage and the remote that all of them share."""

    def create(name: str) -> Path:
        root = tmp_path / name
        root.mkdir()
        monkeypatch.chdir(root)
        Repo.init(no_scm=True).close()
        (root / "dvc.yaml").write_text(PIPELINE)
        (root / "single").write_text("once\n")
        dvc("remote", "add", "--default", "storage", str(tmp_path / "storage"))
        return root

    return create


def dvc(*words: str) -> None:
    subprocess.run([BIN / "dvc", *words], check=True, capture_output=True)


def runs(root: Path) -> int:
    return (root.parent / "runs").read_text().count("run")


def test_stage_that_another_machine_has_run_is_restored(machine: Callable[[str], Path]) -> None:
    one = machine("one")
    assert DvcStages(shares_results=True).reproduce("double")
    two = machine("two")
    assert DvcStages(shares_results=True).reproduce("double")
    assert runs(one) == 1
    assert (two / "double").read_text() == "once\nonce\n"
    assert (two / "folder/copy").read_text() == "once\n"
    assert (two / "dvc.lock").read_bytes() == (one / "dvc.lock").read_bytes()


def test_stage_that_was_up_to_date_before_is_sent_too(machine: Callable[[str], Path]) -> None:
    one = machine("one")
    assert DvcStages().reproduce("double")
    assert not (one.parent / "storage").exists()
    assert not DvcStages(shares_results=True).reproduce("double")
    machine("two")
    assert DvcStages(shares_results=True).reproduce("double")
    assert runs(one) == 1


def test_results_that_dvc_has_pushed_are_found_by_the_dvc_lock_of_a_commit(machine: Callable[[str], Path]) -> None:
    one = machine("one")
    assert DvcStages().reproduce("double")
    dvc("push")
    lock = (one / "dvc.lock").read_text()
    two = machine("two")
    (two / "dvc.lock").write_text(lock)
    forget_lock(two / ".dvc/cache/runs")
    assert DvcStages(shares_results=True).reproduce("double")
    assert runs(one) == 1
    assert (two / "dvc.lock").read_text() == lock


def test_prepare_clone_gets_the_users_files_and_puts_the_params_in_place(
    machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine("one")
    (one / "photos").mkdir()
    (one / "photos/cat.png").write_text("picture")
    dvc("add", "photos")
    dvc("push")
    two = machine("two")
    (two / "requirements.lock").touch()
    (two / "photos.dvc").write_bytes((one / "photos.dvc").read_bytes())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("CODLINE_TRACKING", "on")
    prepare_clone("seed: 7\n", starts=3)
    assert (two / "photos/cat.png").read_text() == "picture"
    assert (two / "params.yaml").read_text() == "seed: 7\n"
    assert os.environ["CODLINE_TRACKING"] == "off"  # a database in the clone would be removed with it
    with pytest.raises(InfrastructureError, match=r"^it was killed 3 times, perhaps for lack of memory"):
        prepare_clone(None, starts=4)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("other\n")])
def test_result_that_is_missing_or_damaged_in_the_remote_is_computed_here(
    machine: Callable[[str], Path], damage: Callable[[Path], None]
) -> None:
    one = machine("one")
    DvcStages(shares_results=True).reproduce("double")
    objects = [path for path in (one.parent / "storage/files").rglob("*") if path.is_file()]
    (target,) = (path for path in objects if path.read_text() == "once\nonce\n")
    target.chmod(0o644)
    damage(target)
    two = machine("two")
    assert DvcStages(shares_results=True).reproduce("double")
    assert runs(one) == 2
    assert (two / "double").read_text() == "once\nonce\n"


def test_remote_that_is_not_configured_is_refused(machine: Callable[[str], Path]) -> None:
    machine("one")
    dvc("remote", "remove", "storage")
    with pytest.raises(UserError, match="DVC has no default remote to share results through; dvc remote add --default"):
        check_remote()


def test_remote_that_does_not_answer_is_an_infrastructure_error(
    machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("one")
    dvc("remote", "modify", "storage", "url", "s3://results/codline")
    settings = {"ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in (settings | {"MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(InfrastructureError, match=r"^the DVC remote s3://results/codline does not answer \(Could not"):
        check_remote()


@pytest.mark.parametrize(
    ("raised", "kind", "sentence"),
    [
        (
            PermissionError("Access Denied"),
            UserError,
            "access denied (Access Denied); check this machine's credentials",
        ),
        (FileNotFoundError("no bucket"), UserError, "not found (no bucket); create it, or correct its address"),
        (ConnectionResetError("reset"), InfrastructureError, "does not answer (reset)"),
    ],
)
def test_errors_of_a_remote_are_one_sentence(
    machine: Callable[[str], Path], raised: OSError, kind: type[CodlineError], sentence: str
) -> None:
    machine("one")
    with Repo() as repo, pytest.raises(kind) as caught, RemoteResults(repo).errors():
        raise raised
    assert str(caught.value).startswith("the DVC remote ")
    assert str(caught.value).endswith(sentence)
