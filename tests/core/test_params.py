"""A wrong parameter is refused with one sentence: which key, what was found, what was expected."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core import params
from codline.core.errors import UserError
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top
from codline.strategies.base import Chooser
from codline.strategies.entropy import Entropy
from stages.__main__ import check, whole
from tests.workspace import REPOSITORY, Workspace, created

COUNT = "a share of the pool (more than 0, less than 1) or a number of images (1, 2, ...)"
START = "a share of the pool (more than 0, less than 1), a number of images (1, 2, ...) or all"
STRATEGIES = ", ".join(sorted(params.tag(kind) for kind in members("strategies")))
SENTENCES = [
    ("trian", {}, "trian: unknown section; did you mean train?"),
    ("seed", -1, "seed: found -1, expected a whole number that is not negative"),
    ("seed", None, "seed: found nothing, expected a whole number that is not negative"),
    ("seed", True, "seed: found true, expected a whole number that is not negative"),
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
        "score.truth: found 'pool', expected oracle: true_loss is told the answers, and the pool has none",
    ),
    ("score.truth", "oracle", "score.truth: found 'oracle', expected pool: cod must not see the answers"),
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
        "score.strategy.first_cycle: found 'small', expected 'largest', 'smallest', 'independent', 'snapshot' or 'random'",
    ),
    ("prepare.dataset.tset", 0.5, "prepare.dataset.tset: unknown key; did you mean test?"),
    (
        "prepare.model.name",
        "resnet",
        "prepare.model.name: unknown model 'resnet'; did you mean resnet18 or resnet18_224 or small_unet?",
    ),
    ("annotate.annotator.noise", 2, "annotate.annotator.noise: found 2, expected at most 1"),
    ("select.budget", 0, f"select.budget: found 0, expected {COUNT}"),
    ("select.budget", 1.5, f"select.budget: found 1.5, expected {COUNT}"),
    ("select.budget", "5%", f"select.budget: found '5%', expected {COUNT}"),
    ("prepare.start", True, f"prepare.start: found true, expected {START}"),
    ("prepare.start", "everything", f"prepare.start: found 'everything', expected {START}"),
    ("prepare.start", 1.0, f"prepare.start: found 1.0, expected {START}"),
    (
        "prepare.start",
        "all",
        "prepare.start: found 'all', which leaves nothing to ask for; expected one cycle, which asks for nothing",
    ),
    ("select.budget", "all", f"select.budget: found 'all', expected {COUNT}"),
    ("merge.order", 1, "merge.order: unknown key; expected no keys here"),
    ("merge", 3, "merge: found 3, expected keys beneath it"),
    ("cycles", {}, "cycles: found none, expected at least c1: {prev: init}"),
    ("cycles", 7, "cycles: found 7, expected keys beneath it"),
    ("cycles.c2", {}, "cycles.c2.prev: missing"),
    ("cycles.c2.pre", "c1", "cycles.c2.pre: unknown key; did you mean prev?"),
    ("cycles.c2.prev", "init", "cycles.c2.prev: found 'init', expected 'c1': each cycle follows the one above it"),
    ("queries", {}, "queries: found none, expected the lines of cycles without the last: c1, c2"),
    ("queries.c2.prev", "init", "queries.c2.prev: found 'init', expected 'c1' as in cycles"),
]


def refusal(folder: Path, where: str, value: Any) -> UserError:
    """What is said of a params.yaml that is right but for one value."""
    return refusal_of(created(folder), where, value)


def refusal_of(workspace: Workspace, where: str, value: Any) -> UserError:
    workspace.change(**{where: value})
    with pytest.raises(UserError) as refused:
        check(workspace.root / "params.yaml")
    return refused.value


def test_the_parameters_of_the_repository_are_right() -> None:
    check(REPOSITORY / "params.yaml")


@pytest.mark.parametrize(
    ("where", "value", "sentence"), SENTENCES, ids=[f"{where}={value}" for where, value, _ in SENTENCES]
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, where: str, value: Any, sentence: str) -> None:
    refused = refusal(tmp_path, where, value)
    assert str(refused) == f"params.yaml: {sentence}"
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("where", "key"),
    [("train", "epochs"), ("score", "strategy"), ("score", "truth"), ("select", "budget"), ("evaluate", "batch_size")],
)
def test_a_key_that_is_not_there_is_named(tmp_path: Path, where: str, key: str) -> None:
    kept = {name: value for name, value in params.load(REPOSITORY / "params.yaml")[where].items() if name != key}
    assert str(refusal(tmp_path, where, kept)) == f"params.yaml: {where}.{key}: missing"


def test_a_long_value_is_shortened(tmp_path: Path) -> None:
    assert len(str(refusal(tmp_path, "train.epochs", "very " * 100))) < 150


def test_an_empty_section_is_a_section_without_keys(tmp_path: Path) -> None:
    created(tmp_path).change(merge=None, compute=None)
    check(tmp_path / "params.yaml")
    assert params.section(params.load(tmp_path / "params.yaml"), "compute", params.Compute) == params.Compute()


def test_shares_that_add_up_to_more_than_the_pool_are_refused(tmp_path: Path) -> None:
    told = "select.budget: 2 queries of 50% after a start of 10% ask for more than the whole pool"
    assert str(refusal(tmp_path, "select.budget", 0.5)) == f"params.yaml: {told}"


def test_one_cycle_may_start_with_everything_labeled_and_people_may_label_the_rest(tmp_path: Path) -> None:
    workspace = created(tmp_path)
    workspace.change(**{"prepare.start": "all"} | params.chain(1))
    check(tmp_path / "params.yaml")
    workspace.change(**{"annotate.annotator": {"name": "people", "answers": "answers.csv"}} | params.chain(3))
    check(tmp_path / "params.yaml")


def test_sections_cannot_be_changed() -> None:
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
def test_a_file_that_is_not_parameters_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        params.load(path)
    assert str(refused.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(refused.value)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not valid YAML"):
        params.load(path)


def test_no_file_at_all_is_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found; run this from the root of a codline project"):
        params.load(tmp_path / "params.yaml")


@given(st.integers(1, 50))
def test_a_chain_of_any_length_is_one_that_cycles_accepts(count: int) -> None:
    assert list(params.cycles(params.chain(count))) == [f"c{i}" for i in range(1, count + 1)]


def test_a_campaign_has_at_least_one_cycle() -> None:
    with pytest.raises(UserError, match="expected at least 1"):
        params.chain(0)


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1, 10**6))
def test_a_share_of_a_pool_is_at_least_one_image_and_at_most_all(share: float, total: int) -> None:
    assert 1 <= params.amount(share, total) <= total
    assert abs(params.amount(share, total) - share * total) <= 1


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_number_of_images_is_that_number(count: int, total: int) -> None:
    assert params.amount(count, total) == count


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
def test_a_strategy_whose_other_model_is_not_kept_is_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    workspace = created(tmp_path)
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
def test_a_model_or_strategy_that_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    workspace = created(tmp_path)
    workspace.change(**changes)
    with pytest.raises(UserError) as caught:
        check(workspace.root / "params.yaml")
    assert str(caught.value) == f"params.yaml: {sentence}"


def test_the_true_loss_is_refused_where_people_answer(tmp_path: Path) -> None:
    workspace = created(tmp_path)
    workspace.change(**{"score.strategy": {"name": "true_loss"}, "score.truth": "oracle"})
    check(tmp_path / "params.yaml")
    refused = refusal_of(workspace, "annotate.annotator", {"name": "people", "answers": "answers.csv"})
    told = "found 'true_loss', which is told the answers, but people do not know them; expected annotate.annotator {name: simulated}"
    assert str(refused) == f"params.yaml: score.strategy.name: {told}"


def test_a_query_that_is_chosen_whole_is_not_drawn_from_again() -> None:
    class Jointly(Chooser):
        name: str = "jointly"

    whole(Jointly(), Top())
    whole(Entropy(), Softmax())
    with pytest.raises(
        UserError, match=r"select\.pick\.name: found 'softmax', but jointly chooses whole queries; expected top$"
    ):
        whole(Jointly(), Softmax())
