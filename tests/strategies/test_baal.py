"""The strategy `baal`, where the library is installed; it is not in the extra `dev`, because it depends on Jupyter."""

from typing import get_args

import numpy as np
import pytest

from codline.core.errors import DataError
from codline.strategies.baal import Baal
from codline.strategies.bald import Bald
from codline.strategies.base import Strategy
from codline.strategies.mc_dropout import McDropout
from tests.strategies.test_peers import make_passes, score_passes
from tests.workspace import Workspace

pytest.importorskip("baal", reason="baal is not installed", exc_type=ImportError)


@pytest.mark.parametrize("pixels", [(), (3, 2)], ids=["image", "pixels"])
@pytest.mark.parametrize(("strategy", "heuristic"), [(Bald(), "BALD"), (McDropout(), "Entropy")])
def test_bald_and_mc_dropout_score_like_baal(strategy: Strategy, heuristic: str, pixels: tuple[int, ...]) -> None:
    passes = make_passes(2, pixels=pixels)
    found = score_passes(Baal.model_validate({"heuristic": heuristic}), passes)
    assert found == pytest.approx(score_passes(strategy, passes), abs=1e-12)


@pytest.mark.parametrize("heuristic", ["BALD", "Margin"])
def test_baal_scores_do_not_depend_on_the_batch_size(workspace: Workspace, heuristic: str) -> None:
    scores = []
    for size in (7, 1024):
        strategy = {"name": "baal", "heuristic": heuristic, "passes": 5}
        workspace.change(**{"score.strategy": strategy, "score.batch_size": size})
        workspace.run("score", "c2")
        scores.append(workspace.path("score", "scores", "c2").read_bytes())
    assert scores[0] == scores[1]


@pytest.mark.parametrize("heuristic", get_args(Baal.model_fields["heuristic"].annotation))
def test_baal_refuses_an_image_that_is_not_finite(heuristic: str) -> None:
    """baal 2.1.0 takes a whole batch for logits if one value is no probability, and gives NaN the lowest score."""
    strategy, passes = Baal.model_validate({"heuristic": heuristic}), make_passes(10)
    before = score_passes(strategy, passes)
    above_one = np.nextafter(np.eye(5)[0], 2) * np.eye(5)[0]
    rounded = [np.where(np.arange(50)[:, None] == 3, above_one, probs) for probs in passes]
    assert np.delete(score_passes(strategy, rounded), 3).tolist() == np.delete(before, 3).tolist()
    passes[1][4] = np.nan
    with pytest.raises(DataError, match=r"^outputs of image 4: found NaN or infinity, expected finite numbers$"):
        score_passes(strategy, passes)
