"""diagnose: how well the score foretells the loss, on a case small enough to do by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from codline.acquisition.discrepancy import discrepancy
from codline.core.files import read_json, write_json
from codline.core.params import Compute
from codline.data import image_store, output_store, tables
from codline.evaluation.rank_statistics import capture
from codline.learning import auxiliary_networks, inference, model_file
from codline.models.small_cnn import SmallCnn
from stages.diagnose import Params, diagnose
from tests.workspace import Workspace

LABELS = [0, 1, 0, 1, 0]
SURE_OF_0 = [4.0, 3.0, 2.0, 1.0, 0.0]  # logit of class 0 over class 1: the last are the least certain
BEFORE = [4.0, 3.0, 2.0, -1.0, -9.0]  # the same, one cycle back: the last moved most
LOSSES = [
    float(np.log1p(np.exp(-logit if label == 0 else logit))) for logit, label in zip(SURE_OF_0, LABELS, strict=True)
]


def told(path: Path, cycle: str, ids: np.ndarray, sure_of_0: list[float]) -> None:
    with output_store.writing(path, (2,), cycle) as keep:
        keep(ids, np.array([[logit, 0.0] for logit in sure_of_0], np.float32).reshape(-1, 2))


def diagnosed(
    folder: Path, scores: list[float], query: list[int], buckets: int = 2, before: str = "c1", forgotten: int = 0
) -> dict[str, Any]:
    """`before` is the cycle of the previous outputs, `forgotten` how many images they lack."""
    ids = np.arange(10, 15)
    write_json(
        folder / "dataset",
        {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0], "std": [1]},
    )
    tables.write(pa.table([ids[::-1], LABELS[::-1]], schema=tables.ORACLE), tables.ORACLE, folder / "oracle")
    told(folder / "outputs", "c2", ids, SURE_OF_0)
    told(folder / "previous_outputs", before, ids[forgotten:], BEFORE[forgotten:])
    tables.write(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "scores")
    asked = pa.table([query, np.arange(len(query), dtype=np.int32), np.ones(len(query))], schema=tables.QUERY)
    tables.write(asked, tables.QUERY, folder / "query")
    image_store.write(
        folder / "images", np.arange(20), np.random.default_rng(0).integers(256, size=(20, 1, 8, 8), dtype=np.uint8)
    )
    network = SmallCnn(width=2).initial(2, (1, 8, 8), seed=0)
    model_file.save_network(
        folder / "model", network, model_file.Card(SmallCnn(width=2).model_dump(), 2, (1, 8, 8), "c2", 3)
    )
    auxiliary_networks.write(
        folder / "auxiliary", "c2", {f"snapshot.5.{key}": value for key, value in network.state_dict().items()}
    )
    inputs = ("images", "dataset", "oracle", "model", "auxiliary", "outputs", "previous_outputs", "scores", "query")
    files = {name: folder / name for name in (*inputs, "diagnostics")}
    diagnose(
        Params(buckets=buckets, bootstrap=200, gradients=3), seed=0, compute=Compute(device="cpu"), cycle="c2", **files
    )
    found: dict[str, Any] = read_json(folder / "diagnostics")
    return found


def test_spearman_is_the_one_computed_by_hand(tmp_path: Path) -> None:
    """Losses rank 1, 5, 2, 4, 3 from the smallest; with scores ranked 2, 5, 1, 3, 4 the squared differences add up to 4."""
    assert np.argsort(np.argsort(LOSSES)).tolist() == [0, 4, 1, 3, 2]
    found = diagnosed(tmp_path, [0.2, 0.5, 0.1, 0.3, 0.4], [11])
    assert found["spearman"] == pytest.approx(1 - 6 * 4 / (5 * (25 - 1)))


@pytest.mark.parametrize(("scores", "expected"), [(LOSSES, 1.0), ([-loss for loss in LOSSES], -1.0), ([0.5] * 5, None)])
def test_spearman_knows_the_extremes_and_says_nothing_of_flat_scores(
    tmp_path: Path, scores: list[float], expected: float | None
) -> None:
    assert diagnosed(tmp_path, scores, [11])["spearman"] == (expected if expected is None else pytest.approx(expected))


def test_buckets_are_mean_losses_from_the_most_wanted_to_the_least(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12], buckets=2)
    assert found["bucket_losses"] == pytest.approx([np.mean([LOSSES[i] for i in rows]) for rows in ([1, 2, 4], [3, 0])])
    assert diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11], buckets=50)["bucket_losses"] == pytest.approx(
        [LOSSES[i] for i in (1, 2, 4, 3, 0)]
    )


def test_the_query_is_told_apart_from_the_pool(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12])
    assert found["mean_loss"] == pytest.approx(np.mean(LOSSES))
    assert found["mean_loss_of_query"] == pytest.approx((LOSSES[1] + LOSSES[2]) / 2)
    assert found["classes_in_query"] == [1, 1]
    assert found["mean_score"] == pytest.approx(0.54)


def test_discrepancy_is_the_mean_over_all_images_that_had_outputs_before(tmp_path: Path) -> None:
    sure = [1 / (1 + np.exp(-np.array(logits))) for logits in (SURE_OF_0, BEFORE)]
    distances = np.sqrt(2) * np.abs(sure[0] - sure[1])
    assert diagnosed(tmp_path, LOSSES, [11])["mean_discrepancy"] == pytest.approx(distances.mean())
    assert diagnosed(tmp_path, LOSSES, [11], forgotten=2)["mean_discrepancy"] == pytest.approx(distances[2:].mean())
    assert diagnosed(tmp_path, LOSSES, [11], forgotten=5)["mean_discrepancy"] is None


def test_capture_and_interval_are_those_of_scores_and_losses(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, LOSSES, [11])
    assert found["capture"] == [1.0] * 100
    assert found["capture_gain"] == pytest.approx(1)
    assert (found["spearman_low"], found["spearman_high"]) == pytest.approx((1, 1))
    found = diagnosed(tmp_path, [0.5] * 5, [11])
    assert (found["spearman_low"], found["spearman_high"]) == (None, None)


def test_overlap_is_with_what_other_strategies_would_have_asked_for(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, [0.1, 0.9, 0.2, 0.3, 0.8], [11, 14])["overlap"]
    del found["random"]
    assert found == {"cod": 0.5, "entropy": 0.5, "margin": 0.5, "least_confidence": 0.5}  # all of them want 13 and 14
    assert diagnosed(tmp_path, LOSSES, [13, 14])["overlap"]["entropy"] == 1.0


@pytest.mark.parametrize("changes", [{"before": "init"}, {"forgotten": 1}])
def test_without_outputs_of_a_cycle_before_nobody_says_what_cod_would_have_asked_for(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert "cod" not in diagnosed(tmp_path, LOSSES, [11], **changes)["overlap"]


def test_a_strategy_overlaps_with_itself_wholly(workspace: Workspace) -> None:
    """The names and the random stream are those that score uses."""
    for name in ("cod", "random", "entropy", "margin", "least_confidence"):
        workspace.change(**{"score.strategy": {"name": name}})
        for stage in ("score", "select", "diagnose"):
            workspace.run(stage, "c2")
        assert read_json(workspace.path("diagnose", "diagnostics", "c2"))["overlap"][name] == 1.0


def test_tod_is_captured_for_every_snapshot_and_gradients_are_measured(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, LOSSES, [11])
    network, _ = model_file.load_network(tmp_path / "model", classes=2, shape=(1, 8, 8))
    normalize = inference.Normalize([0.0], [1.0], torch.device("cpu"))
    ids = np.arange(10, 15)
    ((_, earlier),) = inference.logits(network, image_store.opened(tmp_path / "images").take, ids, normalize, 512)
    now = np.array([[logit, 0.0] for logit in SURE_OF_0])
    by_hand = capture(discrepancy(output_store.softmax(now), output_store.softmax(earlier)), np.array(LOSSES), ids)
    assert list(found["tod"]) == ["5"]
    assert found["tod"]["5"]["capture"] == pytest.approx(by_hand)
    assert found["squared_gradient_norm"] > 0
