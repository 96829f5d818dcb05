"""LockStatus: results are logged only if dvc.lock records that they were made from the parameters and files of now."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from codline.core.errors import DataError
from codline.tracking.lock_status import LockStatus, read_lock
from tests.tracking.mlflow_view import write_lock
from tests.workspace import Workspace, create_workspace

OUTS = [{"path": "x", "md5": "y"}]


@pytest.fixture
def empty(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path)


def train_and_evaluate(model: str, seed: int) -> dict[str, Any]:
    """Entries of a training with this seed, and of an evaluation of the model with this hash."""
    deps = [{"path": "m", "md5": model}, {"path": "code.py", "md5": "x"}]
    return {
        "train@c1": {"params": {"params.yaml": {"seed": seed}}, "outs": [{"path": "m", "md5": "new"}]},
        "evaluate@c1": {"deps": deps, "outs": [{"path": "metrics", "md5": "y"}]},
    }


@pytest.mark.parametrize(
    ("model", "seed", "current"),
    [
        pytest.param("new", 0, True, id="made from the files of now"),
        pytest.param("old", 0, False, id="the model was trained again since"),
        pytest.param("new", 1, False, id="the model was trained with another seed"),
    ],
)
def test_is_current_follows_dependencies_to_their_producers(
    empty: Workspace, model: str, seed: int, current: bool
) -> None:
    write_lock(empty, train_and_evaluate(model, seed))
    assert LockStatus(empty.pipeline).is_current("evaluate@c1") == current


def test_is_current_is_true_of_a_stage_without_an_entry(empty: Workspace) -> None:
    assert LockStatus(empty.pipeline).is_current("score@c1")
    write_lock(empty, train_and_evaluate("old", seed=1))
    assert LockStatus(empty.pipeline).is_current("score@c1")


@pytest.mark.parametrize(("budget", "current"), [(40, True), (41, False)])
def test_is_current_compares_params_by_dotted_key(empty: Workspace, budget: int, current: bool) -> None:
    empty.change(**{"select.budget": 40})
    write_lock(empty, {"score@c1": {"params": {"params.yaml": {"select.budget": budget}}, "outs": OUTS}})
    assert LockStatus(empty.pipeline).is_current("score@c1") == current


def test_is_current_is_false_of_params_that_no_longer_exist(empty: Workspace) -> None:
    write_lock(empty, {"score@c1": {"params": {"params.yaml": {"score.removed": None}}, "outs": OUTS}})
    assert not LockStatus(empty.pipeline).is_current("score@c1")


@pytest.mark.parametrize(("second", "current"), [("b", True), ("c", False)])
def test_is_current_compares_a_directory_with_the_files_in_it(empty: Workspace, second: str, current: bool) -> None:
    listing = b'[{"md5": "a", "relpath": "c1/m"}, {"md5": "b", "relpath": "c2/m"}]'  # as DVC hashes directories
    stages = {
        "train@c1": {"outs": [{"path": "cycles/c1/m", "md5": "a"}]},
        "train@c2": {"outs": [{"path": "cycles/c2/m", "md5": second}]},
        "report": {"deps": [{"path": "cycles", "md5": hashlib.md5(listing).hexdigest() + ".dir"}], "outs": OUTS},
    }
    write_lock(empty, stages)
    assert LockStatus(empty.pipeline).is_current("report") == current


def test_may_log_refuses_stages_without_an_entry_if_only_recorded_ones_are_wanted(empty: Workspace) -> None:
    assert LockStatus(empty.pipeline).may_log("train@c1", ())
    assert not LockStatus(empty.pipeline, recorded_only=True).may_log("train@c1", ())
    write_lock(empty, train_and_evaluate("new", seed=0))
    assert LockStatus(empty.pipeline, recorded_only=True).may_log("train@c1", ())


def test_may_log_refuses_a_file_that_was_replaced_since(empty: Workspace) -> None:
    path = empty.root / "m"
    write_lock(empty, {"train@c1": {"outs": [{"path": "m", "md5": hashlib.md5(b"recorded").hexdigest()}]}})
    for content in (b"recorded", b"replaced"):
        path.write_bytes(content)
        assert LockStatus(empty.pipeline).may_log("train@c1", (path,)) == (content == b"recorded")


@pytest.mark.parametrize("text", ["", "schema: '2.0'\nstages:\n", "schema: '2.0'\nstages:\n  train@c1:\n    cmd: 'x"])
def test_read_lock_refuses_a_truncated_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "dvc.lock").write_text(text)
    with pytest.raises(DataError, match=r"dvc.lock: not a complete file"):
        read_lock(tmp_path / "dvc.lock")


def test_read_lock_gives_no_entry_without_all_its_deps_and_params(empty: Workspace) -> None:
    from dvc.utils.serialize import dumps_yaml

    whole = train_and_evaluate("new", seed=0)
    text = dumps_yaml({"schema": "2.0", "stages": whole})
    path = empty.root / "dvc.lock"
    for length in range(len(text)):
        path.write_text(text[:length])
        try:
            stages = read_lock(path)
        except DataError:
            continue
        for name, entry in stages.items():
            assert json.dumps(entry | {"outs": None}) == json.dumps(whole[name] | {"outs": None}), text[:length]


def test_read_lock_without_a_file_has_no_stages(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "dvc.lock") == {}
