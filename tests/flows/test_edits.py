"""An edit while a stage runs is refused if the stage depends on it: dvc.lock never names what did not make a result."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from codline.core.errors import DataError
from codline.learning.checkpoints import read_state
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.params_file import set_value
from tests.bits import flip_bit
from tests.project import Project, clone_with_small_campaign, make_once

EPOCHS = 120  # long enough to edit a file while they run

Edit = Callable[[Project], None]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, fork_server_environment: dict[str, str]) -> Project:
    """A project of which prepare and train@c1 have run, by dvc repro. Read only."""

    def make(folder: Path) -> None:
        project = clone_with_small_campaign(folder / "codline", CODLINE_TRACKING="off", **fork_server_environment)
        set_param(project, "train.epochs", EPOCHS)
        project.must("dvc", "repro", "-q", "train@c1")

    root = make_once(tmp_path_factory, "trained", make) / "codline"
    return Project(root, CODLINE_TRACKING="off", **fork_server_environment)


@pytest.fixture
def to_train(trained: Project, tmp_path: Path) -> Project:
    """A copy in which train@c1 has to run again, since nothing is left of it."""
    project = trained.copy_to(tmp_path / "codline")
    lines = project.lock.decode().splitlines(keepends=True)
    start = lines.index("  train@c1:\n")
    (project.root / "dvc.lock").write_text("".join(lines[:start]))
    for path in (project.root / "cycles/c1").iterdir():
        path.unlink()
    for entry in (project.root / ".dvc/cache/runs").glob("*/*/*"):
        entry.unlink()
        entry.parent.rmdir()
    return project


def set_param(project: Project, key: str, value: object) -> None:
    path = project.root / "params.yaml"
    raw = YAML().load(path.read_text())
    set_value(raw, key, value)
    with path.open("w") as file:
        YAML().dump(raw, file)


def append_comment(project: Project, name: str) -> None:
    with (project.root / name).open("a") as file:
        file.write("# edited\n")


def replace_file(project: Project, name: str) -> None:
    content = (project.root / name).read_bytes()
    (project.root / name).unlink()
    (project.root / name).write_bytes(content)


def repro_with_edit(project: Project, edit: Edit) -> tuple[int, str]:
    """Run `dvc repro train@c1` and edit a file after the first epochs; returns the exit code and the output."""
    process = project.start("dvc", "repro", "train@c1")
    wait_for_epochs(project)
    edit(project)
    return process.wait(60), project.output


def wait_for_epochs(project: Project) -> None:
    deadline = time.monotonic() + 60
    while not (project.root / ".codline/progress/train@c1.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (
            lambda project: set_param(project, "train.epochs", 3),
            f"params.yaml: train.epochs changed from {EPOCHS} to 3",
        ),
        (lambda project: append_comment(project, "codline/learning/fit.py"), "codline/learning/fit.py changed"),
        (lambda project: append_comment(project, "stages/train.py"), "stages/train.py changed"),
        (lambda project: replace_file(project, "data/pool.parquet"), "data/pool.parquet changed"),
        (lambda project: replace_file(project, "data/images/00000.arrow"), "data/images changed"),
    ],
    ids=["parameter", "code", "stage", "table", "images"],
)
def test_repro_refuses_an_edit_that_the_running_stage_depends_on(to_train: Project, edit: Edit, change: str) -> None:
    before = to_train.lock
    code, output = repro_with_edit(to_train, edit)
    assert code != 0
    assert f"train@c1: {change} while train@c1 ran; its result is not recorded: run it again" in output
    assert to_train.lock == before
    assert not list((to_train.root / "cycles/c1").iterdir())


@pytest.mark.parametrize(
    "edit",
    [
        lambda project: set_param(project, "score.batch_size", 7),
        lambda project: append_comment(project, "codline/learning/gradient_norm.py"),  # train does not import it
        lambda project: append_comment(project, "codline/models/resnet18.py"),  # not this campaign's model
        lambda project: append_comment(project, "codline/runtime/progress.py"),  # decides no byte of a result
        lambda project: replace_file(project, "data/test.parquet"),
    ],
    ids=["other section", "code not imported", "other plug-in", "runtime", "other file"],
)
def test_repro_accepts_an_edit_that_the_running_stage_does_not_depend_on(
    to_train: Project, trained: Project, edit: Edit
) -> None:
    code, output = repro_with_edit(to_train, edit)
    assert code == 0, output
    model = "cycles/c1/model.safetensors"
    assert (to_train.root / model).read_bytes() == (trained.root / model).read_bytes()


def test_refused_training_is_resumed_when_the_old_value_comes_back(to_train: Project, trained: Project) -> None:
    code, _ = repro_with_edit(to_train, lambda project: set_param(project, "train.epochs", 3))
    assert code != 0
    (checkpoint,) = (to_train.root / ".codline/checkpoints").glob("*/last.checkpoint")
    state = read_state(checkpoint)
    assert state is not None
    assert state.epoch == EPOCHS
    set_param(to_train, "train.epochs", EPOCHS)
    to_train.must("dvc", "repro", "-q", "train@c1")
    assert to_train.lock == trained.lock
    assert not checkpoint.exists()


def test_flow_refuses_an_edit_and_runs_the_stage_again(
    to_train: Project, trained: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = to_train.lock
    monkeypatch.chdir(to_train.root)
    for name, value in to_train.environment.items():
        monkeypatch.setenv(name, value)
    with ThreadPoolExecutor(1) as threads:
        stages = DvcStages()
        run = threads.submit(stages.reproduce, "train@c1")
        wait_for_epochs(to_train)
        set_param(to_train, "train.epochs", 3)
        with pytest.raises(DataError, match=f"^train@c1: .*epochs changed from {EPOCHS} to 3 while train@c1 ran"):
            run.result(60)
        assert to_train.lock == before
        set_param(to_train, "train.epochs", EPOCHS)
        assert threads.submit(stages.reproduce, "train@c1").result(60)
    assert to_train.lock == trained.lock


@pytest.mark.parametrize("name", ["data/images/00000.arrow", "cycles/init/model.safetensors", "data/pool.parquet"])
def test_repro_refuses_an_input_with_a_flipped_bit(to_train: Project, name: str) -> None:
    before, path = to_train.lock, to_train.root / name
    to_train.must("dvc", "status", "prepare")  # DVC remembers times and hashes, and would notice new files
    flip_bit(path, 8 * path.stat().st_size // 2)
    done = to_train.run("dvc", "repro", "train@c1")
    assert done.returncode != 0
    found = name if path.parent.name != "images" else "data/images"
    assert f"train@c1: {found}: differs from the " in done.stderr
    assert " that dvc.lock records for prepare: damaged" in done.stderr
    assert to_train.lock == before
    assert "restored from DVC's cache" in to_train.must("codline", "verify", "--repair")
    to_train.must("dvc", "repro", "-q", "train@c1")
