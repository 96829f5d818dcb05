"""diagnose: how well scores rank images by loss, on a case small enough to compute by hand."""

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
from codline.evaluation.rank_statistics import RANKING_KEYS, capture_curve
from codline.learning import auxiliary_networks, inference, model_file
from codline.learning.gradient_norm import squared_norms
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from stages.diagnose import Params, diagnose
from tests.workspace import Workspace

LABELS = [0, 1, 0, 1, 0]
LOGITS_OF_0 = [4.0, 3.0, 2.0, 1.0, 0.0]  # class 1 has logit 0: the last images are the least certain
PREVIOUS_LOGITS_OF_0 = [4.0, 3.0, 2.0, -1.0, -9.0]  # of the cycle before: the last have the largest discrepancy
LOSSES = [
    float(np.log1p(np.exp(-logit if label == 0 else logit))) for logit, label in zip(LOGITS_OF_0, LABELS, strict=True)
]


def write_outputs(path: Path, cycle: str, ids: np.ndarray, logits_of_0: list[float]) -> None:
    with output_store.output_writer(path, (2,), cycle) as keep:
        keep(ids, np.array([[logit, 0.0] for logit in logits_of_0], np.float32).reshape(-1, 2))


def run_diagnose(
    folder: Path,
    scores: list[float],
    query: list[int],
    buckets: int = 2,
    previous: str = "c1",
    missing: int = 0,
    ranks_pool: bool = True,
    gradients: int = 4,
) -> dict[str, Any]:
    """`previous` is the cycle of the previous outputs, which lack the first `missing` images."""
    ids = np.arange(10, 15)
    write_json(
        folder / "dataset",
        {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0], "std": [1]},
    )
    tables.write_table(pa.table([ids[::-1], LABELS[::-1]], schema=tables.ORACLE), tables.ORACLE, folder / "oracle")
    write_outputs(folder / "outputs", "c2", ids, LOGITS_OF_0)
    write_outputs(folder / "previous_outputs", previous, ids[missing:], PREVIOUS_LOGITS_OF_0[missing:])
    schema = tables.schema_of_scores(tables.SCORES, ranks_pool)
    tables.write_table(pa.table([ids, scores], schema=schema), tables.SCORES, folder / "scores")
    tables.write_table(
        pa.table([[1, 2, 3], [0, 1, 0], ["c1"] * 3, ["simulated"] * 3], schema=tables.LABELED),
        tables.LABELED,
        folder / "labeled",
    )
    rows = pa.table([query, np.arange(len(query), dtype=np.int32), np.ones(len(query))], schema=tables.QUERY)
    tables.write_table(rows, tables.QUERY, folder / "query")
    image_store.write_images(
        folder / "images", np.arange(20), np.random.default_rng(0).integers(256, size=(20, 1, 8, 8), dtype=np.uint8)
    )
    network = SmallCnn(width=2).initial_network(2, (1, 8, 8), seed=0)
    model_file.save_network(
        folder / "model", network, model_file.ModelCard(SmallCnn(width=2).model_dump(), 2, (1, 8, 8), "c2", 3)
    )
    snapshot = {f"snapshot.5.{key}": value for key, value in network.state_dict().items()}
    doubled = snapshot["snapshot.5.head.weight"] * 2
    auxiliary_networks.write_auxiliary(
        folder / "auxiliary", "c2", snapshot | {"snapshot.5.head.weight": doubled, "steps.total": torch.tensor(20)}
    )
    inputs = ("images", "dataset", "oracle", "labeled", "model", "auxiliary", "outputs", "previous_outputs", "scores")
    files = {name: folder / name for name in (*inputs, "query", "diagnostics")}
    params = Params(buckets=buckets, bootstrap=200, gradients=gradients)
    diagnose(params, seed=0, compute=Compute(device="cpu"), cycle="c2", **files)
    diagnostics: dict[str, Any] = read_json(folder / "diagnostics")
    return diagnostics


def test_diagnose_computes_spearman_as_by_hand(tmp_path: Path) -> None:
    """Losses have ranks 1, 5, 2, 4, 3 and scores 2, 5, 1, 3, 4: the squared differences add up to 4."""
    assert np.argsort(np.argsort(LOSSES)).tolist() == [0, 4, 1, 3, 2]
    diagnostics = run_diagnose(tmp_path, [0.2, 0.5, 0.1, 0.3, 0.4], [11])
    assert diagnostics["spearman"] == pytest.approx(1 - 6 * 4 / (5 * (25 - 1)))


@pytest.mark.parametrize(("scores", "expected"), [(LOSSES, 1.0), ([-loss for loss in LOSSES], -1.0), ([0.5] * 5, None)])
def test_diagnose_gives_spearman_of_extreme_scores_and_none_of_constant_ones(
    tmp_path: Path, scores: list[float], expected: float | None
) -> None:
    assert run_diagnose(tmp_path, scores, [11])["spearman"] == (
        expected if expected is None else pytest.approx(expected)
    )


def test_diagnose_gives_mean_losses_of_buckets_by_descending_score(tmp_path: Path) -> None:
    diagnostics = run_diagnose(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12], buckets=2)
    assert diagnostics["bucket_losses"] == pytest.approx(
        [np.mean([LOSSES[i] for i in rows]) for rows in ([1, 2, 4], [3, 0])]
    )
    assert run_diagnose(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11], buckets=50)["bucket_losses"] == pytest.approx(
        [LOSSES[i] for i in (1, 2, 4, 3, 0)]
    )


def test_diagnose_distinguishes_the_query_from_the_pool(tmp_path: Path) -> None:
    diagnostics = run_diagnose(tmp_path, [0.1, 0.9, 0.8, 0.2, 0.7], [11, 12])
    assert diagnostics["mean_loss"] == pytest.approx(np.mean(LOSSES))
    assert diagnostics["mean_loss_of_query"] == pytest.approx((LOSSES[1] + LOSSES[2]) / 2)
    assert diagnostics["loss_ratio"] == pytest.approx((LOSSES[1] + LOSSES[2]) / 2 / np.mean(LOSSES))
    assert diagnostics["classes_in_query"] == [1, 1]
    assert diagnostics["mean_score"] == pytest.approx(0.54)


def test_diagnose_averages_the_discrepancy_over_images_with_previous_outputs(tmp_path: Path) -> None:
    probs = [1 / (1 + np.exp(-np.array(logits))) for logits in (LOGITS_OF_0, PREVIOUS_LOGITS_OF_0)]
    distances = np.sqrt(2) * np.abs(probs[0] - probs[1])
    assert run_diagnose(tmp_path, LOSSES, [11])["mean_discrepancy"] == pytest.approx(distances.mean())
    assert run_diagnose(tmp_path, LOSSES, [11], missing=2)["mean_discrepancy"] == pytest.approx(distances[2:].mean())
    assert run_diagnose(tmp_path, LOSSES, [11], missing=5)["mean_discrepancy"] is None


def test_diagnose_gives_capture_and_interval_of_scores_and_losses(tmp_path: Path) -> None:
    diagnostics = run_diagnose(tmp_path, LOSSES, [11])
    assert diagnostics["capture"] == [1.0] * 100
    assert diagnostics["capture_gain"] == pytest.approx(1)
    assert (diagnostics["spearman_low"], diagnostics["spearman_high"]) == pytest.approx((1, 1))
    diagnostics = run_diagnose(tmp_path, [0.5] * 5, [11])
    assert (diagnostics["spearman_low"], diagnostics["spearman_high"]) == (None, None)


def test_diagnose_gives_the_overlap_with_the_queries_of_other_strategies(tmp_path: Path) -> None:
    diagnostics = run_diagnose(tmp_path, [0.1, 0.9, 0.2, 0.3, 0.8], [11, 14])["overlap"]
    del diagnostics["random"]
    assert diagnostics == {
        "cod": 0.5,
        "entropy": 0.5,
        "margin": 0.5,
        "least_confidence": 0.5,
    }  # all of them select 13 and 14
    assert run_diagnose(tmp_path, LOSSES, [13, 14])["overlap"]["entropy"] == 1.0


@pytest.mark.parametrize("changes", [{"previous": "init"}, {"missing": 1}])
def test_diagnose_leaves_out_cod_without_outputs_of_a_trained_previous_model(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert "cod" not in run_diagnose(tmp_path, LOSSES, [11], **changes)["overlap"]


def test_diagnose_gives_full_overlap_of_a_strategy_with_itself(workspace: Workspace) -> None:
    """The names and the random stream are those of `score`."""
    for name in ("cod", "random", "entropy", "margin", "least_confidence"):
        workspace.change(**{"score.strategy": {"name": name}})
        for stage in ("score", "select", "diagnose"):
            workspace.run(stage, "c2")
        assert read_json(workspace.path("diagnose", "diagnostics", "c2"))["overlap"][name] == 1.0


def load_networks(folder: Path) -> tuple[Network, Network]:
    """The model, and the snapshot of its training."""
    model, card = model_file.load_network(folder / "model", classes=2, shape=(1, 8, 8))
    empty = card.spec.uninitialized_network(2, (1, 8, 8))
    tensors = auxiliary_networks.read_auxiliary(folder / "auxiliary")
    return model, auxiliary_networks.load_auxiliary_network(empty, 5, tensors)


def test_diagnose_gives_tod_of_every_snapshot(tmp_path: Path) -> None:
    diagnostics, ids = run_diagnose(tmp_path, LOSSES, [11]), np.arange(10, 15)
    take = image_store.open_image_store(tmp_path / "images").take
    normalize = inference.Normalize([0.0], [1.0], torch.device("cpu"))
    ((_, earlier),) = inference.stream_logits(load_networks(tmp_path)[1], take, ids, normalize, 512)
    now = np.array([[logit, 0.0] for logit in LOGITS_OF_0])
    by_hand = capture_curve(
        discrepancy(output_store.softmax(now), output_store.softmax(earlier)), np.array(LOSSES), ids
    )
    assert list(diagnostics["tod"]) == ["5"]
    assert diagnostics["tod"]["5"]["capture"] == pytest.approx(by_hand)


def test_diagnose_gives_gradient_norms_of_both_pools_within_and_after_the_training(tmp_path: Path) -> None:
    """Images 1 to 3 are labeled, 10 to 14 unlabeled; a sample of a hundred has all of them."""
    norms = run_diagnose(tmp_path, LOSSES, [11], gradients=100)["squared_gradient_norm"]
    pixels = image_store.open_image_store(tmp_path / "images").take(np.array([1, 2, 3, 10, 11, 12, 13, 14]))
    after, before = (squared_norms(network, torch.from_numpy(pixels) / 255) for network in load_networks(tmp_path))
    assert norms["labeled"] == pytest.approx(float(after[:3].mean()), rel=1e-4)
    assert norms["unlabeled"] == pytest.approx(float(after[3:].mean()), rel=1e-4)
    assert norms["all"] == pytest.approx(float(after.mean()), rel=1e-4)
    assert norms["variation"] == pytest.approx(float(after.std(correction=0) / after.mean()), rel=1e-3)
    assert norms["within_cycle"]["steps"] == [15, 20]
    assert norms["within_cycle"]["all"] == pytest.approx([float(before.mean()), norms["all"]], rel=1e-4)
    assert norms["within_cycle"]["variation"][1] == norms["variation"]


def test_diagnose_measures_no_gradients_if_it_is_given_no_images_for_them(tmp_path: Path) -> None:
    assert run_diagnose(tmp_path, LOSSES, [11], gradients=0)["squared_gradient_norm"] is None


def test_diagnose_gives_no_rank_statistics_of_a_strategy_that_selects_whole_queries(tmp_path: Path) -> None:
    """Its scores are the order of the query: an oracle that picks the two largest losses would get 0.89."""
    ranked, unranked = (
        run_diagnose(tmp_path, [0.0, 2.0, 0.0, 1.0, 0.0], [11, 13], ranks_pool=each) for each in (True, False)
    )
    assert ranked["spearman"] == pytest.approx(0.89, abs=0.01)
    of_ranking = {key for key in ranked if ranked[key] != unranked[key]}
    assert of_ranking == set(RANKING_KEYS)
    assert all(unranked[key] is None for key in RANKING_KEYS)
    assert unranked["loss_ratio"] > 1
