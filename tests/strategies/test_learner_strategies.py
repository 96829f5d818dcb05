"""Strategies that need training, run through the stages on files."""

from typing import Any

import numpy as np
import pytest

from codline.core.errors import UserError
from codline.data import tables
from tests.workspace import Workspace

SMALL = {"steps": 2, "width": 2, "batch_size": 8, "latent": 4}
LEARNERS: dict[str, dict[str, Any]] = {
    "uncertain_gcn": {"steps": 2},
    "core_gcn": {"steps": 2, "subset": 300},
    "vaal": SMALL,
    "sraal": SMALL,
    "ta_vaal": SMALL,
    "ll4al": {},
}


@pytest.fixture
def with_loss_predictor(workspace: Workspace) -> Workspace:
    """A campaign whose second cycle is trained with a loss predictor."""
    workspace.change(**{"train.objectives": [{"name": "ll4al", "ranking": "logistic", "persists": False}]})
    workspace.run("train", "c2")
    return workspace


def test_learners_write_the_same_scores_twice(with_loss_predictor: Workspace) -> None:
    path = with_loss_predictor.path("score", "scores", "c2")
    for name, parameters in LEARNERS.items():
        with_loss_predictor.change(**{"score.strategy": {"name": name, **parameters}})
        written = []
        for _ in range(2):
            with_loss_predictor.run("score", "c2")
            written.append(path.read_bytes())
        assert written[0] == written[1]
        assert np.isfinite(tables.read_table(path, tables.SCORES)["score"].to_numpy()).all()
        with_loss_predictor.run("select", "c2")
        assert tables.read_table(with_loss_predictor.path("select", "query", "c2"), tables.QUERY).num_rows == 65


@pytest.mark.parametrize("name", ["ll4al", "ta_vaal"])
def test_strategies_with_predicted_losses_are_refused_without_a_loss_predictor(workspace: Workspace, name: str) -> None:
    workspace.change(**{"score.strategy": {"name": name}})
    with pytest.raises(UserError, match=r"expected \{name: ll4al\} among train\.objectives"):
        workspace.run("score", "c2")
