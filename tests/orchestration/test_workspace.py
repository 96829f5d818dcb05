"""The directory of a campaign: one user at a time, mended after a kill, never half changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import BusyError, UserError
from codline.orchestration import prefect_runs, workspace
from codline.runtime import state_directory
from tests.project import Project
from tests.workspace import REPOSITORY

HOLD = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); f.write('4711'); f.flush(); print('held', flush=True); time.sleep(60)"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".codline").mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def forked(warm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a change is checked in this process, it would start a warm process that outlives the test."""
    for name, value in warm.items():
        monkeypatch.setenv(name, value)


def holder(path: Path) -> subprocess.Popen[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_campaign_in_one_directory_is_refused_with_the_first_one_s_process(here: Path) -> None:
    with holder(here / ".codline/campaign.lock") as process:
        with (
            pytest.raises(BusyError, match=r"another campaign \(process 4711\) is running in this directory"),
            workspace.held(),
        ):
            pass
        process.kill()


def test_the_workspace_is_free_again_once_its_holder_was_killed(here: Path) -> None:
    with holder(here / ".codline/campaign.lock") as process:
        process.kill()
    with workspace.held(), workspace.held():
        pass


def test_a_broken_register_of_dvc_is_removed(here: Path) -> None:
    (here / ".dvc/tmp").mkdir(parents=True)
    (here / ".dvc/tmp/rwlock").write_text('{"write": {')
    workspace.heal()
    assert not (here / ".dvc/tmp/rwlock").exists()


def test_an_invalid_override_changes_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    before = (project.root / "params.yaml").read_bytes()
    with pytest.raises(UserError, match=r"train\.epochs: found 'many'"):
        workspace.changed({"train.epochs": "many", "seed": 3})
    with pytest.raises(UserError, match=r"params\.yaml has no 'trian'; did you mean train\?"):
        workspace.changed({"trian.epochs": 3})
    assert (project.root / "params.yaml").read_bytes() == before


def test_an_override_keeps_the_comments_of_params_yaml(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    workspace.changed({"train.epochs": 5, "score.strategy.name": "entropy"})
    text = (project.root / "params.yaml").read_text()
    assert "epochs: 5" in text
    assert "# of the epochs" in text
    assert "first_cycle" not in text


def test_a_preset_is_written_whole_with_the_comments_kept_and_changes_over_it(
    untouched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(untouched.root)
    workspace.changed({}, "digits")
    assert params.load(workspace.PARAMS) == params.load(REPOSITORY / "params.yaml")
    assert "# of the epochs" in workspace.PARAMS.read_text()
    workspace.changed({"score.strategy.name": "entropy"} | params.chain(2), "digits")
    found = params.load(workspace.PARAMS)
    assert found["score"]["strategy"] == {"name": "entropy"}
    assert list(found["cycles"]) == ["c1", "c2"]
    assert found["train"] == params.load(REPOSITORY / "params.yaml")["train"]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"train": {"epochs": "many"}}, "train.epochs: found 'many', expected a whole number"),
        ({"train": {"epoch": 3}}, "train.epoch: unknown key; did you mean epochs?"),
        ({"prepare": {"model": {"name": "drn"}}}, "prepare.model.name: unknown model 'drn'; "),
        ({"trian": {}}, "trian: unknown section; did you mean train?"),
    ],
)
def test_a_preset_that_is_refused_changes_nothing(
    untouched: Project, monkeypatch: pytest.MonkeyPatch, own: dict[str, object], sentence: str
) -> None:
    monkeypatch.chdir(untouched.root)
    before = workspace.PARAMS.read_bytes()
    with Path("presets/mine.yaml").open("w") as file:
        YAML().dump({"about": "broken", "extends": ["digits"], "params": own}, file)
    with pytest.raises(UserError) as refused:
        workspace.changed({"seed": 3}, "mine")
    assert str(refused.value).startswith(f"with the preset mine, params.yaml: {sentence}")
    with pytest.raises(UserError, match=r"unknown preset 'mime'; did you mean mine"):
        workspace.changed({"seed": 3}, "mime")
    assert workspace.PARAMS.read_bytes() == before


def test_a_dvc_lock_held_by_another_process_is_named(project: Project) -> None:
    with holder(project.root / ".dvc/tmp/lock") as process:
        done = project.run("codline", "status")
        process.kill()
    assert done.returncode == BusyError.exit_code
    assert "codline: another DVC command (process" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_named(untouched: Project) -> None:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        untouched.environment["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
        done = untouched.run("codline", "serve")
    assert done.returncode == BusyError.exit_code
    assert f"port {port} is in use, but not by a Prefect server" in done.stderr


def test_notes_are_gone_when_they_are_taken_back(here: Path) -> None:
    state_directory.note("flow", "run", {"id": "x"})
    assert state_directory.read_note("flow", "run") == {"id": "x"}
    state_directory.note("flow", "run", None)
    assert state_directory.read_note("flow", "run") is None


@pytest.mark.parametrize(("gpus", "places"), [(0, os.cpu_count()), (1, 1), (4, 4)])
def test_models_have_a_place_on_every_gpu_or_on_every_core(
    gpus: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_runs, "gpus", lambda: gpus)
    assert prefect_runs.places() == places
