"""A pool with fewer images than the budget, one image or none: the query has what is left, and then it is the end."""

from pathlib import Path

import numpy as np
import pytest

from codline.core import params
from codline.core.errors import PoolUsedUp
from codline.core.files import read_json
from codline.data import tables
from codline.data.labels import lookup_labels, read_ids, unlabeled_ids
from codline.strategies.base import Strategy
from tests.families import SMALL_TRAINING, as_pytest_param, variants
from tests.workspace import Workspace

# Of strategies whose networks the small campaign does not train.
NOT_TRAINED = ("tod", "mc_dropout", "bald", "qbc", "snapshot_committee", "ll4al", "ta_vaal", "true_loss")


def label_all_but(workspace: Workspace, left: int) -> None:
    """Label the pool before c2 as people may, except for these images; a budget of 5 exceeds it."""
    labeled, oracle = workspace.path("score", "labeled", "c2"), workspace.path("prepare", "oracle")
    candidates = unlabeled_ids(workspace.path("score", "pool", "c2"), labeled)
    ids = np.setdiff1d(read_ids(oracle, tables.ORACLE), candidates[len(candidates) - left :])
    labels = lookup_labels(ids, oracle, tables.ORACLE, 10)
    tables.write_columns([ids, labels, ["init"] * len(ids), ["people"] * len(ids)], tables.LABELED, labeled)
    workspace.change(**{"select.budget": 5})


def shortened(strategy: Strategy) -> dict[str, object]:
    fields = strategy.model_dump()
    return fields | {key: value for key, value in SMALL_TRAINING.items() if key in fields and "learning_rate" in fields}


by_name = {(one.name, getattr(one, "query", None)): one for one in variants("strategies")}  # one variant of each
each_strategy = pytest.mark.parametrize(
    "strategy", [as_pytest_param(one) for one in by_name.values() if one.name not in NOT_TRAINED]
)


@each_strategy
@pytest.mark.parametrize("left", [1, 3])
def test_query_has_all_that_is_left_with_every_strategy(
    workspace: Workspace, strategy: Strategy, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    label_all_but(workspace, left)
    workspace.change(**{"score.strategy": shortened(strategy)})
    workspace.run("score", "c2")
    workspace.run("select", "c2")
    assert tables.count_rows(workspace.path("select", "query", "c2"), tables.QUERY) == left
    expected = f"select.budget: found 5 images, but only {left} are left to select from; the query has all of them"
    assert caplog.messages == [expected]


def test_last_image_of_the_pool_is_diagnosed_annotated_merged_and_reported(workspace: Workspace) -> None:
    label_all_but(workspace, 1)
    for stage in ("score", "select", "annotate", "merge", "diagnose"):
        workspace.run(stage, "c2")
    pool = tables.count_rows(workspace.path("prepare", "pool"), tables.POOL)
    assert tables.count_rows(workspace.path("merge", "labeled", "c2"), tables.LABELED) == pool
    assert read_json(workspace.path("diagnose", "diagnostics", "c2"))["spearman"] is None
    workspace.run("train", "c3")
    workspace.run("report")


@pytest.mark.parametrize("name", ["cod", "core_set"])
def test_score_refuses_a_pool_that_is_used_up(workspace: Workspace, name: str) -> None:
    label_all_but(workspace, 0)
    workspace.change(**{"score.strategy": {"name": name}})
    outputs = workspace.outputs("score", "c2")
    for path in outputs:
        path.unlink()
    with pytest.raises(PoolUsedUp) as refused:
        workspace.run("score", "c2")
    found = "every image of the pool has a label, so there is nothing left to select"
    assert str(refused.value).startswith(f"{found}; expected c2 as the last cycle in params.yaml")
    assert not any(path.exists() for path in outputs)


def test_end_campaign_at_keeps_comments_and_a_valid_params_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from codline.orchestration import params_file
    from tests.workspace import REPOSITORY

    text = (REPOSITORY / "params.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    assert params_file.end_campaign_at("c5") == ["c6", "c7"]
    lines = [line for line in text.splitlines() if not line.startswith(("  c5: {prev: c4, a", "  c6: ", "  c7: "))]
    assert Path("params.yaml").read_text().splitlines() == lines
    assert params_file.end_campaign_at("c1") == ["c2", "c3", "c4", "c5"]
    assert list(params.parse_cycles(params.read_yaml(Path("params.yaml")))) == ["c1"]
