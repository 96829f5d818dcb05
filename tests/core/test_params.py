"""params.yaml: a wrong parameter raises UserError with the key, what was found and what was expected."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core import params, params_errors
from codline.core.errors import UserError
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top
from codline.strategies.base import BatchStrategy
from codline.strategies.entropy import Entropy
from stages.check_params import check, check_picker
from tests.workspace import REPOSITORY, Workspace, create_workspace

AMOUNT = "a share of the pool (more than 0, less than 1) or a number of images (1, 2, ...)"
AMOUNT_OR_ALL = "a share of the pool (more than 0, less than 1), a number of images (1, 2, ...) or all"
FIRST_CYCLE = "'largest', 'smallest', 'independent', 'snapshot' or 'random'"
STRATEGIES = ", ".join(sorted(params_errors.plugin_name(kind) for kind in members("strategies")))
SENTENCES = [
    ("trian", {}, "trian: unknown section; did you mean train?"),
    ("seed", -1, "seed: found -1, expected a whole number that is not negative, below 2**63"),
    ("seed", None, "seed: found nothing, expected a whole number that is not negative, below 2**63"),
    ("seed", True, "seed: found true, expected a whole number that is not negative, below 2**63"),
    ("compute", [1], "compute: found [1], expected keys beneath it, such as device"),
    ("compute.device", "gpu", "compute.device: found 'gpu', expected 'auto', 'cpu', 'cuda' or 'mps'"),
    ("compute.threads", 0, "compute.threads: found 0, expected more than 0"),
    ("train.epoch", 3, "train.epoch: unknown key; did you mean epochs?"),
    ("train.epochs", "30", "train.epochs: found '30', expected a whole number"),
    ("train.epochs", 3.5, "train.epochs: found 3.5, expected a whole number"),
    ("train.epochs", None, "train.epochs: found nothing, expected a whole number"),
    ("train.learning_rate", "fast", "train.learning_rate: found 'fast', expected a number"),
    ("train.learning_rate", float("inf"), "train.learning_rate: found inf, expected a finite number"),
    ("train.batch_size", 1, "train.batch_size: found 1, expected at least 2"),
    ("train.momentum", 1, "train.momentum: found 1, expected less than 1"),
    ("train.augment.crops", 1, "train.augment.crops: unknown key; did you mean crop?"),
    ("train.augment.flip", "yes", "train.augment.flip: found 'yes', expected true or false"),
    ("train.objective", {}, "train.objective.name: missing; expected one of cyclic, ema, ll4al, none"),
    ("train.objective.wieght", 1, "train.objective.wieght: unknown key; did you mean weight?"),
    ("train.objective.weight", -1, "train.objective.weight: found -1, expected at least 0"),
    ("train.objective", {"name": "none", "weight": 1}, "train.objective.weight: unknown key; expected name"),
    ("score.strategy", "cod", "score.strategy: found 'cod', expected keys beneath it, such as name"),
    (
        "train.snapshots",
        list(range(1, 10)),
        "train.snapshots: found [1, 2, 3, 4, 5, 6, 7, 8, 9], expected at most 8 of them",
    ),
    ("train.snapshots", 5, "train.snapshots: found 5, expected a list"),
    (
        "prepare.dataset",
        {"name": "parquet", "train": [], "test": ["a"]},
        "prepare.dataset.train: found [], expected at least 1 of them",
    ),
    ("score.strategy.name", "whim", f"score.strategy.name: unknown strategy 'whim'; expected one of {STRATEGIES}"),
    (
        "score.strategy",
        {"name": "true_loss"},
        "score.truth: found 'pool', expected oracle: true_loss needs the true labels, and the pool has none",
    ),
    ("score.truth", "oracle", "score.truth: found 'oracle', expected pool: cod must not see the true labels"),
    ("score.truth", "data/oracle.parquet", "score.truth: found 'data/oracle.parquet', expected 'pool' or 'oracle'"),
    ("score.strategy.name", "entropi", "score.strategy.name: unknown strategy 'entropi'; did you mean entropy?"),
    (
        "score.strategy.name",
        "Least-Confidence",
        "score.strategy.name: unknown strategy 'Least-Confidence'; did you mean least_confidence?",
    ),
    (
        "score.strategy.first_cycle",
        "small",
        f"score.strategy.first_cycle: found 'small', expected {FIRST_CYCLE}",
    ),
    ("prepare.dataset.tset", 0.5, "prepare.dataset.tset: unknown key; did you mean test?"),
    (
        "prepare.model.name",
        "resnet",
        "prepare.model.name: unknown model 'resnet'; did you mean resnet18 or resnet18_224 or small_unet?",
    ),
    ("annotate.annotator.noise", 2, "annotate.annotator.noise: found 2, expected at most 1"),
    ("select.budget", 0, f"select.budget: found 0, expected {AMOUNT}"),
    ("select.budget", 1.5, f"select.budget: found 1.5, expected {AMOUNT}"),
    ("select.budget", "5%", f"select.budget: found '5%', expected {AMOUNT}"),
    ("prepare.start", True, f"prepare.start: found true, expected {AMOUNT_OR_ALL}"),
    ("prepare.start", "everything", f"prepare.start: found 'everything', expected {AMOUNT_OR_ALL}"),
    ("prepare.start", 1.0, f"prepare.start: found 1.0, expected {AMOUNT_OR_ALL}"),
    (
        "prepare.start",
        "all",
        "prepare.start: found 'all', which leaves nothing to query; expected a single cycle, which has no query",
    ),
    ("select.budget", "all", f"select.budget: found 'all', expected {AMOUNT}"),
    ("merge.order", 1, "merge.order: unknown key; expected no keys here"),
    ("merge", 3, "merge: found 3, expected keys beneath it"),
    ("cycles", {}, "cycles: found none, expected at least c1: {prev: init}"),
    ("cycles", 7, "cycles: found 7, expected keys beneath it"),
    ("cycles.c2", {}, "cycles.c2.prev: missing"),
    *(
        (
            "cycles",
            {name: {"prev": "init"}},
            f"cycles: found the name {name!r}, expected at most 64 letters, digits, - and _, such as c1, and not init",
        )
        for name in ("c1 ; touch x #", "../../esc", "init", "", "-c", "c\n1", "$(id)")
    ),
    ("cycles.c2.pre", "c1", "cycles.c2.pre: unknown key; did you mean prev?"),
    ("cycles.c2.prev", "init", "cycles.c2.prev: found 'init', expected 'c1': each cycle follows the one above it"),
    ("queries", {}, "queries: found none, expected the lines of cycles without the last: c1, c2"),
    ("queries.c2.prev", "init", "queries.c2.prev: found 'init', expected 'c1' as in cycles"),
    ("queries.c2.answer", "x", "queries.c2.answer: unknown key; did you mean answers?"),
    (
        "queries.c2",
        {"prev": "c1"},
        "queries.c2.answers: found nothing, expected data/oracle.parquet, which the annotator simulated reads; "
        "`codline run` writes it",
    ),
    (
        "annotate.annotator",
        {"name": "people"},
        "queries.c1.answers: found data/oracle.parquet, expected answers/c1.csv, which the annotator people reads; "
        "`codline run` writes it",
    ),
    (
        "annotate.annotator",
        {"name": "people", "answers": "answers.csv"},
        "annotate.annotator: found {'answers': 'answers.csv', 'name': 'people'}, expected folder instead of answers: "
        "every query has a file of its own, such as answers/c1.csv",
    ),
    *(
        (
            "annotate.annotator",
            {"name": "people", "folder": folder},
            f"annotate.annotator.folder: found {folder!r}, expected a folder in this directory, of letters, digits, - "
            "and _, such as answers (not data, cycles, models, queries or report)",
        )
        for folder in ("../answers", "/answers", "a;b", "$(a)", "my answers", "data", "queries/a", "a/", "", "a\nb")
    ),
]


def error_after_change(workspace: Workspace, key: str, value: Any) -> UserError:
    """The error of a params.yaml that is valid except for one value."""
    workspace.change(**{key: value})
    with pytest.raises(UserError) as refused:
        check(workspace.root / "params.yaml")
    return refused.value


def test_check_accepts_the_parameters_of_the_repository() -> None:
    check(REPOSITORY / "params.yaml")


@pytest.mark.parametrize(("key", "value", "sentence"), SENTENCES, ids=[f"{key}={value}" for key, value, _ in SENTENCES])
def test_check_reports_a_wrong_value_in_one_sentence(tmp_path: Path, key: str, value: Any, sentence: str) -> None:
    error = error_after_change(create_workspace(tmp_path), key, value)
    assert str(error) == f"params.yaml: {sentence}"
    assert error.exit_code == 2


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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("a: 1\na: 2", "not valid YAML"),
        ("- 1", "found [1], expected sections"),
        ("", "found nothing, expected sections"),
    ],
)
def test_read_yaml_refuses_a_file_without_sections(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        params.read_yaml(path)
    assert str(refused.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(refused.value)


def test_read_yaml_refuses_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not valid YAML"):
        params.read_yaml(path)


def test_read_yaml_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found; run this from the root of a codline project"):
        params.read_yaml(tmp_path / "params.yaml")


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
            {"train.objective": {"name": "none"}, "score.strategy": {"name": "emaod"}},
            "emaod compares with a moving average; expected train.objective",
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
            {"score.strategy": {"name": "qbc", "members": [5, 9]}, "train.snapshots": [5]},
            "found 9 steps before the end, but train.snapshots keeps 5",
        ),
        (
            {"score.strategy": {"name": "qbc", "members": [5, 5]}, "train.snapshots": [5]},
            "score.strategy.members: found [5, 5], expected every member once",
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
