"""params.yaml: a wrong parameter raises UserError with the key, what was found and what was expected."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from codline.core import params
from codline.core.errors import UserError
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top
from codline.strategies.base import BatchStrategy
from codline.strategies.entropy import Entropy
from stages.check_params import check, check_picker
from tests.workspace import REPOSITORY, Workspace, create_workspace


def error_after_change(workspace: Workspace, key: str, value: Any) -> UserError:
    """The error of a params.yaml that is valid except for one value."""
    workspace.change(**{key: value})
    with pytest.raises(UserError) as refused:
        check(workspace.root / "params.yaml")
    return refused.value


def test_check_accepts_the_parameters_of_the_repository() -> None:
    check(REPOSITORY / "params.yaml")


@pytest.mark.parametrize(
    ("section", "key"),
    [("train", "epochs"), ("score", "strategy"), ("score", "truth"), ("select", "budget"), ("evaluate", "batch_size")],
)
def test_check_names_a_missing_key(tmp_path: Path, section: str, key: str) -> None:
    values = params.read_yaml(REPOSITORY / "params.yaml")[section]
    del values[key]
    error = error_after_change(create_workspace(tmp_path), section, values)
    assert str(error) == f"params.yaml: {section}.{key}: missing"


def test_check_shortens_a_long_value(tmp_path: Path) -> None:
    assert len(str(error_after_change(create_workspace(tmp_path), "train.epochs", "very " * 100))) < 150


def test_parse_section_accepts_an_empty_section(tmp_path: Path) -> None:
    create_workspace(tmp_path).change(merge=None, compute=None)
    check(tmp_path / "params.yaml")
    assert (
        params.parse_section(params.read_yaml(tmp_path / "params.yaml"), "compute", params.Compute) == params.Compute()
    )


def test_check_refuses_shares_that_exceed_the_pool(tmp_path: Path) -> None:
    problem = "2 queries of 50% after a start of 10% ask for more than the whole pool"
    error = error_after_change(create_workspace(tmp_path), "select.budget", 0.5)
    assert str(error) == f"params.yaml: select.budget: {problem}"


def test_check_allows_a_start_of_all_with_one_cycle_or_with_people(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    workspace.change(**{"prepare.start": "all"} | params.cycle_chain(1))
    check(tmp_path / "params.yaml")
    workspace.change(**params.cycle_chain(3))
    workspace.ask_people()
    check(tmp_path / "params.yaml")


def test_sections_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        params.Compute().threads = 2


@given(st.integers(1, 50))
def test_cycle_chain_of_any_length_is_valid(count: int) -> None:
    assert list(params.parse_cycles(params.cycle_chain(count))) == [f"c{i}" for i in range(1, count + 1)]


@pytest.mark.parametrize("count", [0, 100_000])
def test_cycle_chain_has_one_to_a_thousand_cycles(count: int) -> None:
    with pytest.raises(UserError, match=f"^cycles: found {count}, expected 1 to 1000$"):
        params.cycle_chain(count)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"train.objectives": [], "score.strategy": {"name": "emaod"}},
            "emaod compares with a moving average; expected {name: ema} among train.objectives",
        ),
        (
            {"score.strategy": {"name": "tod", "steps": 7}},
            "score.strategy: found 7 steps before the end, but train.snapshots keeps none",
        ),
        (
            {"score.strategy": {"name": "cod", "first_cycle": "snapshot"}, "train.snapshots": [5]},
            "found 100 steps before the end, but train.snapshots keeps 5",
        ),
        (
            {"score.strategy": {"name": "snapshot_committee", "members": [5, 9]}, "train.snapshots": [5]},
            "found 9 steps before the end, but train.snapshots keeps 5",
        ),
        (
            {"score.strategy": {"name": "snapshot_committee", "members": [5, 5]}, "train.snapshots": [5]},
            "score.strategy.members: found [5, 5], expected every member once",
        ),
        (
            {"score.strategy": {"name": "qbc"}, "train.committee": 1},
            "train.committee: found 1, expected at least as many as score.strategy.members",
        ),
    ],
)
def test_check_refuses_a_strategy_whose_reference_model_is_not_stored(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    workspace = create_workspace(tmp_path)
    check(tmp_path / "params.yaml")
    workspace.change(**changes)
    with pytest.raises(UserError, match=re.escape(sentence)):
        check(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"prepare.model": {"name": "small_unet"}},
            "prepare.model.name: found 'small_unet', a model for segmentation; digits is for classification",
        ),
        (
            {"prepare.dataset": {"name": "streets"}, "prepare.model": {"name": "drn_d_22"}, "train.augment.size": 90},
            "train.augment.size: found 90, expected a multiple of 8 for drn_d_22",
        ),
        (
            {
                "prepare.dataset": {"name": "streets"},
                "prepare.model": {"name": "small_unet"},
                "score.strategy": {"name": "badge"},
            },
            "score.strategy.name: found 'badge', which is not defined for segmentation",
        ),
    ],
)
def test_check_refuses_a_model_or_strategy_for_another_task(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    workspace = create_workspace(tmp_path)
    workspace.change(**changes)
    with pytest.raises(UserError) as refused:
        check(workspace.root / "params.yaml")
    assert str(refused.value) == f"params.yaml: {sentence}"


def test_check_refuses_true_loss_with_people_as_annotators(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    workspace.change(**{"score.strategy": {"name": "true_loss"}, "score.truth": "oracle"})
    check(tmp_path / "params.yaml")
    error = error_after_change(workspace, "annotate.annotator", {"name": "people"})
    found = "found 'true_loss', which uses the true labels, but the annotator people has none"
    expected = "expected annotate.annotator {name: simulated}"
    assert str(error) == f"params.yaml: score.strategy.name: {found}; {expected}"


def test_check_refuses_people_for_masks(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    workspace.change(**{"prepare.dataset": {"name": "streets"}, "prepare.model": {"name": "small_unet"}})
    check(tmp_path / "params.yaml")
    error = error_after_change(workspace, "annotate.annotator", {"name": "people"})
    found = "found 'people', but streets is a segmentation dataset, whose labels are masks; expected simulated"
    assert str(error) == f"params.yaml: annotate.annotator.name: {found}"


def test_check_returns_queries_with_the_file_that_the_annotator_reads(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    assert check(tmp_path / "params.yaml")["queries"] == params.cycle_chain(3)["queries"]
    workspace.change(**{"annotate.annotator": {"name": "people", "folder": "labels/ours"}})
    expected = {"c1": {"prev": "init", "answers": "labels/ours/c1.csv"}}
    expected |= {"c2": {"prev": "c1", "answers": "labels/ours/c2.csv"}}
    assert check(tmp_path / "params.yaml", derive=True)["queries"] == expected


def test_check_picker_refuses_all_but_top_for_strategies_that_select_whole_queries() -> None:
    class JointSelection(BatchStrategy):
        name: str = "joint_selection"

    check_picker(JointSelection(), Top())
    check_picker(Entropy(), Softmax())
    with pytest.raises(
        UserError,
        match=r"select\.pick\.name: found 'softmax', but joint_selection selects whole queries; expected top$",
    ):
        check_picker(JointSelection(), Softmax())


def test_check_params_imports_no_library_that_takes_seconds() -> None:
    program = (
        "import sys; from pathlib import Path; from stages.check_params import check; check(Path('params.yaml'));"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    slow = {"torch", "torchvision", "sklearn", "scipy", "matplotlib"}
    assert slow.isdisjoint(done.stdout.split())
