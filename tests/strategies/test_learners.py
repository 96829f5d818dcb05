"""Strategies that learn, through the stages: on real files, with a real model."""

from typing import Any

import numpy as np
import pytest

from codline.core.errors import UserError
from codline.data import tables
from tests.workspace import Workspace

QUICK = {"steps": 2, "width": 2, "batch_size": 8, "latent": 4}
LEARNERS: dict[str, dict[str, Any]] = {
    "uncertain_gcn": {"steps": 2},
    "core_gcn": {"steps": 2, "subset": 300},
    "vaal": QUICK,
    "sraal": QUICK,
    "ta_vaal": QUICK,
    "ll4al": {},
}


@pytest.fixture
def learned(workspace: Workspace) -> Workspace:
    """Its second cycle is trained with what foretells losses."""
    workspace.change(**{"train.objective": {"name": "ll4al", "ranking": "logistic", "persists": False}})
    workspace.run("train", "c2")
    return workspace


def test_every_learner_scores_the_pool_with_the_same_bytes_twice(learned: Workspace) -> None:
    for name, settings in LEARNERS.items():
        learned.change(**{"score.strategy": {"name": name, **settings}})
        first, second = scored(learned), scored(learned)
        assert first == second
        scores = tables.read(learned.path("score", "scores", "c2"), tables.SCORES)["score"].to_numpy()
        assert np.isfinite(scores).all()
        learned.run("select", "c2")
        assert tables.read(learned.path("select", "query", "c2"), tables.QUERY).num_rows == 72


def scored(workspace: Workspace) -> bytes:
    workspace.run("score", "c2")
    return workspace.path("score", "scores", "c2").read_bytes()


@pytest.mark.parametrize("name", ["ll4al", "ta_vaal"])
def test_what_looks_at_losses_foretold_is_refused_where_nothing_foretells_them(workspace: Workspace, name: str) -> None:
    workspace.change(**{"score.strategy": {"name": name}})
    with pytest.raises(UserError, match=r"expected train\.objective \{name: ll4al"):
        workspace.run("score", "c2")
