"""diagnose: how well the score foretells the loss, on a case small enough to do by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from codline import outputs, tables
from codline.files import read_json, write_json
from stages.diagnose import Params, diagnose

LABELS = [0, 1, 0, 1, 0]
SURE_OF_0 = [4.0, 3.0, 2.0, 1.0, 0.0]  # logit of class 0 over class 1
LOSSES = [float(np.log1p(np.exp(-logit if label == 0 else logit))) for logit, label in zip(SURE_OF_0, LABELS, strict=True)]


def diagnosed(folder: Path, scores: list[float], query: list[int], buckets: int = 2) -> dict[str, Any]:
    ids = np.arange(10, 15)
    write_json(folder / "dataset", {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0], "std": [1]})
    tables.write(pa.table([ids[::-1], LABELS[::-1]], schema=tables.ORACLE), tables.ORACLE, folder / "oracle")
    for _ in outputs.write(folder / "outputs", 2, "c1", [(ids, [np.array([[logit, 0.0] for logit in SURE_OF_0], np.float32)])]):
        pass
    tables.write(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "scores")
    asked = pa.table([query, np.arange(len(query), dtype=np.int32), np.ones(len(query))], schema=tables.QUERY)
    tables.write(asked, tables.QUERY, folder / "query")
    files = {name: folder / name for name in ("dataset", "oracle", "outputs", "scores", "query", "diagnostics")}
    diagnose(Params(buckets=buckets), cycle="c1", **files)
    found: dict[str, Any] = read_json(folder / "diagnostics")
    return found


def test_spearman_is_the_one_computed_by_hand(tmp_path: Path) -> None:
    """Losses rank 1, 5, 2, 4, 3 from the smallest; with scores ranked 2, 5, 1, 3, 4 the squared differences add up to 4."""
    assert np.argsort(np.argsort(LOSSES)).tolist() == [0, 4, 1, 3, 2]
    found = diagnosed(tmp_path, [0.2, 0.5, 0.1, 0.3, 0.4], [11])
    assert found["spearman"] == pytest.approx(1 - 6 * 4 / (5 * (25 - 1)))


@pytest.mark.parametrize(("scores", "expected"), [(LOSSES, 1.0), ([-loss for loss in LOSSES], -1.0), ([0.5] * 5, None)])
def test_spearman_knows_the_extremes_and_says_nothing_of_flat_scores(tmp_path: Path, scores: list[float], expected: float | None) -> None:
    assert diagnosed(tmp_path, scores, [11])["spearman"] == (expected if expected is None else pytest.approx(expected))


def test_buckets_are_mean_losses_from_the_most_wanted_to_the_least(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12], buckets=2)
    assert found["bucket_losses"] == pytest.approx([np.mean([LOSSES[i] for i in rows]) for rows in ([1, 2, 4], [3, 0])])
    assert diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11], buckets=50)["bucket_losses"] == pytest.approx([LOSSES[i] for i in (1, 2, 4, 3, 0)])


def test_the_query_is_told_apart_from_the_pool(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12])
    assert found["mean_loss"] == pytest.approx(np.mean(LOSSES))
    assert found["mean_loss_of_query"] == pytest.approx((LOSSES[1] + LOSSES[2]) / 2)
    assert found["classes_in_query"] == [1, 1]
    assert found["mean_score"] == pytest.approx(0.54)
