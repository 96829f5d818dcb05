"""score: scores recomputed from the files of models and images, without codline's inference code."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import entr

from codline.core.errors import DataError, UserError
from codline.data import tables
from codline.data.random_streams import derive_seed
from codline.learning import model_file
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from stages.check_params import check
from tests.workspace import Workspace

ORACLE_BASELINE = {"strategy": {"name": "true_loss"}, "truth": "oracle"}


def score(workspace: Workspace, cycle: str = "c2", **changes: object) -> dict[int, float]:
    """Run the stage with changed parameters and return the scores by id."""
    workspace.change(**{f"score.{key}": value for key, value in changes.items()})
    workspace.run("score", cycle)
    return read_scores(workspace, cycle)


def read_scores(workspace: Workspace, cycle: str = "c2") -> dict[int, float]:
    table = tables.read_table(workspace.path("score", "scores", cycle), tables.SCORES)
    return dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))


def read_query(workspace: Workspace, cycle: str) -> list[int]:
    ids: list[int] = tables.read_table(workspace.path("select", "query", cycle), tables.QUERY)["id"].to_pylist()
    return ids


def read_labels(workspace: Workspace) -> dict[int, int]:
    table = tables.read_table(workspace.path("prepare", "oracle"), tables.ORACLE)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def unlabeled_ids(workspace: Workspace, cycle: str) -> list[int]:
    pool = tables.read_table(workspace.path("score", "pool", cycle), tables.POOL)["id"].to_pylist()
    labeled = tables.read_table(workspace.path("score", "labeled", cycle), tables.LABELED)["id"].to_pylist()
    return sorted(set(pool) - set(labeled))


def read_images(workspace: Workspace, ids: list[int]) -> torch.Tensor:
    """Standardized images, read with pyarrow alone."""
    info = json.loads(workspace.path("score", "dataset", "c2").read_text())
    table = pa.ipc.open_file(workspace.path("score", "images", "c2") / "00000.arrow").read_all()
    rows = np.searchsorted(table["id"].to_numpy(), ids)
    pixels = np.array(table["image"].take(rows).to_pylist(), np.float32).reshape(-1, *info["shape"]) / 255
    return torch.from_numpy((pixels - np.float32(info["mean"])) / np.float32(info["std"]))


def load_model(workspace: Workspace, cycle: str) -> Network:
    """The network of a cycle, or the untrained one (`init`)."""
    path = workspace.path("prepare", "model") if cycle == "init" else workspace.path("train", "model", cycle)
    return build_network(load_file(path))


def load_auxiliary(workspace: Workspace, prefix: str) -> Network:
    tensors = load_file(workspace.path("train", "auxiliary", "c2"))
    return build_network({key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)})


def build_network(tensors: dict[str, torch.Tensor]) -> Network:
    network = SmallCnn(width=4).build(10, (1, 8, 8)).eval()
    network.load_state_dict(tensors)
    return network


def probs(network: Network, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        outputs: np.ndarray = network(images).double().softmax(1).numpy()
    return outputs


def discrepancies(workspace: Workspace, reference: Network, cycle: str = "c2") -> np.ndarray:
    """Distances between the outputs of the cycle's model and of a reference, for the images that were scored."""
    images = read_images(workspace, list(read_scores(workspace, cycle)))
    difference = probs(load_model(workspace, cycle), images) - probs(reference, images)
    distances: np.ndarray = np.sqrt((difference**2).sum(axis=1))
    return distances


def test_cod_is_the_distance_between_the_outputs_of_two_cycles(workspace: Workspace) -> None:
    scores, expected = read_scores(workspace), discrepancies(workspace, load_model(workspace, "c1"))
    assert list(scores) == unlabeled_ids(workspace, "c2")
    assert list(scores.values()) == pytest.approx(expected, abs=1e-6)
    query, distances = read_query(workspace, "c2"), dict(zip(scores, expected, strict=True))
    assert query == sorted(distances, key=lambda i: -distances[i])[: len(query)]


def test_cod_prefers_small_distances_to_the_untrained_model_in_the_first_cycle(workspace: Workspace) -> None:
    scores = score(workspace, "c1", strategy={"name": "cod", "first_cycle": "smallest"})
    expected = -discrepancies(workspace, load_model(workspace, "init"), "c1")
    assert list(scores.values()) == pytest.approx(expected, abs=1e-6)


def test_cod_can_use_an_independent_network_in_the_first_cycle(workspace: Workspace) -> None:
    scores = score(workspace, "c1", strategy={"name": "cod", "first_cycle": "independent"})
    independent = SmallCnn(width=4).initial_network(10, (1, 8, 8), derive_seed(0, "independent")).eval()
    assert list(scores.values()) == pytest.approx(-discrepancies(workspace, independent, "c1"), abs=1e-6)
    assert not torch.equal(independent.head.weight, load_model(workspace, "init").head.weight)


def test_emaod_is_the_distance_to_the_averaged_weights(workspace: Workspace) -> None:
    scores = score(workspace, strategy={"name": "emaod"})
    expected = discrepancies(workspace, load_auxiliary(workspace, "objective.ema.average.module."))
    assert list(scores.values()) == pytest.approx(expected, abs=1e-6)
    assert max(scores.values()) > 1e-3


@pytest.mark.parametrize(
    ("objectives", "strategy"),
    [
        ([{"name": "ema"}, {"name": "ll4al", "persists": False}], "ll4al"),
        ([{"name": "ema"}, {"name": "ll4al", "persists": False}], "emaod"),
        ([{"name": "cyclic"}, {"name": "ema", "weight": 0}], "emaod"),
    ],
)
def test_strategies_find_the_network_of_their_objective_among_several(
    workspace: Workspace, objectives: list[dict[str, Any]], strategy: str
) -> None:
    workspace.change(**{"train.objectives": objectives})
    workspace.run("train", "c2")
    scores = score(workspace, strategy={"name": strategy})
    assert len(set(scores.values())) > len(scores) // 2
    if strategy == "emaod":
        expected = discrepancies(workspace, load_auxiliary(workspace, "objective.ema.average.module."))
        assert list(scores.values()) == pytest.approx(expected, abs=1e-6)


def test_tod_is_the_distance_to_a_snapshot(workspace: Workspace) -> None:
    workspace.change(**{"train.snapshots": [3, 7]})
    workspace.run("train", "c2")
    scores = score(workspace, strategy={"name": "tod", "steps": 7})
    expected = discrepancies(workspace, load_auxiliary(workspace, "snapshot.7."))
    assert list(scores.values()) == pytest.approx(expected, abs=1e-6)
    assert max(scores.values()) > 1e-3
    assert score(workspace, strategy={"name": "tod", "steps": 3}) != scores


def test_snapshot_committee_counts_the_votes_of_the_model_and_its_snapshots(workspace: Workspace) -> None:
    workspace.change(**{"train.snapshots": [3, 7, 18]})
    workspace.run("train", "c2")
    scores = score(workspace, strategy={"name": "snapshot_committee", "by": "variation_ratio", "members": [3, 18]})
    snapshots = [load_auxiliary(workspace, f"snapshot.{steps}.") for steps in (3, 18)]
    images = read_images(workspace, list(scores))
    votes = np.stack([probs(network, images).argmax(1) for network in (load_model(workspace, "c2"), *snapshots)])
    ratios = [1 - np.bincount(ballot).max() / 3 for ballot in votes.T]
    assert list(scores.values()) == pytest.approx(ratios, abs=1e-5)
    assert len(set(ratios)) > 1
    assert len(set(scores.values())) > len(scores) // 2


def test_emaod_without_an_average_and_tod_without_its_snapshot_are_refused(workspace: Workspace) -> None:
    workspace.change(**{"train.objectives": [], "train.snapshots": [3]})
    workspace.run("train", "c2")
    no_average = r"emaod compares with a moving average; expected \{name: ema\} among train\.objectives"
    with pytest.raises(UserError, match=no_average):
        score(workspace, strategy={"name": "emaod"})
    no_snapshot = r"found 100 steps before the end, but train\.snapshots keeps 3; expected one of them"
    with pytest.raises(UserError, match=rf"score\.strategy: {no_snapshot}"):
        score(workspace, strategy={"name": "tod"})


def give_model_dropout(workspace: Workspace, rate: float) -> None:
    """Rewrite the file of c2's model as that of a model with a dropout layer, with the same weights."""
    path = workspace.path("score", "model", "c2")
    card = model_file.read_card(path, classes=10, shape=(1, 8, 8))
    spec = card.spec.model_copy(update={"dropout": rate})
    network = spec.initial_network(10, (1, 8, 8), seed=0)
    network.body, network.head[1] = (module := load_model(workspace, "c2")).body, module.head
    model_file.save_network(path, network, replace(card, model=spec.model_dump()))


@pytest.mark.parametrize("strategy", [{"name": "mc_dropout"}, {"name": "feature_dropout", "dropout": 0.25}])
def test_dropout_passes_mask_the_same_features_of_all_images(workspace: Workspace, strategy: dict[str, object]) -> None:
    network, generator = load_model(workspace, "c2"), torch.Generator().manual_seed(derive_seed(0, "dropout", "c2"))
    if strategy["name"] == "mc_dropout":
        give_model_dropout(workspace, 0.25)
    scores = score(workspace, strategy=strategy | {"passes": 4})
    with torch.no_grad():
        features = network.body(read_images(workspace, list(scores)))
        masks = torch.rand(4, features.shape[1], generator=generator) >= 0.25
        passes = [network.head(features * mask / 0.75).double().softmax(1) for mask in masks]
    assert list(scores.values()) == pytest.approx(entr(torch.stack(passes).mean(0).numpy()).sum(1), abs=1e-6)


@pytest.mark.parametrize("name", ["mc_dropout", "bald"])
def test_dropout_strategies_are_refused_for_a_model_without_dropout(workspace: Workspace, name: str) -> None:
    refusal = f"score.strategy.name: found '{name}', but the model is trained without dropout; expected prepare.model"
    with pytest.raises(UserError, match=re.escape(refusal)):
        score(workspace, strategy={"name": name})
    with pytest.raises(UserError, match=re.escape(refusal)):
        check(workspace.root / "params.yaml")
    workspace.change(**{"prepare.model.dropout": 0.1})
    check(workspace.root / "params.yaml")


@pytest.mark.parametrize("batch_size", [7, 64, 100, 1024])
def test_scores_and_outputs_are_the_same_bytes_for_every_batch_size(workspace: Workspace, batch_size: int) -> None:
    expected = [path.read_bytes() for path in workspace.outputs("score", "c2")]
    score(workspace, batch_size=batch_size)
    assert [path.read_bytes() for path in workspace.outputs("score", "c2")] == expected


@pytest.mark.parametrize("name", ["mc_dropout", "bald"])
def test_dropout_passes_depend_on_the_cycle_and_not_on_the_batch_size(workspace: Workspace, name: str) -> None:
    strategy = {"name": name, "passes": 5}
    give_model_dropout(workspace, 0.5)
    scores = score(workspace, strategy=strategy, batch_size=1024)
    assert score(workspace, batch_size=7) == scores
    assert min(scores.values()) >= 0
    workspace.path("score", "model", "c1").write_bytes(workspace.path("score", "model", "c2").read_bytes())
    other = score(workspace, "c1")
    assert not any(other[i] == value for i, value in scores.items() if value > 1e-3)


def test_random_scores_depend_on_the_cycle_and_repeat(workspace: Workspace) -> None:
    first, second = (score(workspace, cycle, strategy={"name": "random"}) for cycle in ("c1", "c2"))
    assert not set(first.values()) & set(second.values())
    assert score(workspace) == second


def test_outputs_record_their_cycle(workspace: Workspace) -> None:
    for cycle, argument, recorded in (
        ("c1", "previous_outputs", "init"),
        ("c2", "previous_outputs", "c1"),
        ("c2", "outputs", "c2"),
    ):
        schema = pq.read_schema(workspace.path("score", argument, cycle))
        assert tables.read_metadata(schema) == {"cycle": recorded}


def test_cod_is_the_same_with_stored_and_recomputed_outputs(workspace: Workspace) -> None:
    stored = score(workspace)
    assert score(workspace, previous="recomputed") == stored


def test_images_of_a_subset_have_the_scores_that_they_have_in_the_whole_pool(workspace: Workspace) -> None:
    whole_pool = score(workspace)
    subset = score(workspace, subset=100)
    assert len(subset) == 100
    assert {i: whole_pool[i] for i in subset} == subset
    assert score(workspace, previous="recomputed") == subset
    assert pq.read_table(workspace.path("score", "outputs", "c2"))["id"].to_pylist() == list(subset)
    assert list(score(workspace, "c1", previous="stored")) != list(subset)


def test_random_views_change_the_scores_and_repeat(workspace: Workspace) -> None:
    plain = score(workspace, previous="recomputed")
    augmented = score(workspace, augment={"crop": 1, "flip": True})
    assert augmented != plain
    assert score(workspace) == augmented


def test_random_views_are_refused_with_stored_outputs(workspace: Workspace) -> None:
    refusal = "expected previous: recomputed with augment: both models must see the same view"
    with pytest.raises(UserError, match=refusal):
        score(workspace, augment={"crop": 1})


def test_true_loss_campaign_queries_the_images_with_the_largest_loss(workspace: Workspace) -> None:
    workspace.change(**{f"score.{key}": value for key, value in ORACLE_BASELINE.items()})
    for cycle in ("c1", "c2"):
        for stage in ("train", "score", "select", "annotate", "merge", "diagnose"):
            workspace.run(stage, cycle)
        ids, labels = unlabeled_ids(workspace, cycle), read_labels(workspace)
        predicted = probs(load_model(workspace, cycle), read_images(workspace, ids))
        losses = {i: -np.log(row[labels[i]]) for i, row in zip(ids, predicted, strict=True)}
        query = read_query(workspace, cycle)
        assert query == sorted(losses, key=lambda i: -losses[i])[: len(query)]
        diagnostics = json.loads(workspace.path("diagnose", "diagnostics", cycle).read_text())
        assert diagnostics["spearman"] == diagnostics["capture_gain"] == pytest.approx(1)
    assert not set(read_query(workspace, "c1")) & set(ids)


def test_true_loss_does_not_depend_on_subset_or_batch_size(workspace: Workspace) -> None:
    whole_pool = score(workspace, **ORACLE_BASELINE)
    assert score(workspace, batch_size=7) == whole_pool
    subset = score(workspace, subset=20)
    assert {i: whole_pool[i] for i in subset} == subset


def test_true_labels_are_for_true_loss_only(workspace: Workspace) -> None:
    not_allowed = r"score\.truth: found 'oracle', expected pool: entropy must not see the true labels$"
    with pytest.raises(UserError, match=not_allowed):
        score(workspace, strategy={"name": "entropy"}, truth="oracle")
    needed = r"score\.truth: found 'pool', expected oracle: true_loss needs the true labels, and the pool has none$"
    with pytest.raises(UserError, match=needed):
        score(workspace, strategy={"name": "true_loss"}, truth="pool")


def test_true_loss_refuses_an_image_without_a_true_label(workspace: Workspace) -> None:
    labels, missing = read_labels(workspace), unlabeled_ids(workspace, "c2")[3]
    del labels[missing]
    table = pa.table([list(labels), list(labels.values())], schema=tables.ORACLE)
    tables.write_table(table, tables.ORACLE, workspace.path("prepare", "oracle"))
    with pytest.raises(DataError, match=rf"^data/oracle\.parquet: has no label for id {missing}$"):
        score(workspace, **ORACLE_BASELINE)


def test_score_does_not_open_the_true_labels_for_other_strategies(workspace: Workspace) -> None:
    path = workspace.path("score", "scores", "c2")
    expected = path.read_bytes()
    path.unlink()
    unreadable = workspace.root / "unreadable.parquet"
    unreadable.write_bytes(b"not a Parquet file")
    workspace.run("score", "c2", truth=unreadable)
    assert path.read_bytes() == expected
