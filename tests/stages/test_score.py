"""score: cyclic output discrepancy, computed a second time by hand from the two models' files."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import entr

from codline.core.errors import DataError, UserError
from codline.core.random_streams import derive
from codline.data import tables
from codline.models.base import Network
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace


def all_images(workspace: Workspace) -> tuple[np.ndarray, torch.Tensor]:
    """Ids and standardised images, read with pyarrow alone."""
    facts = json.loads(workspace.path("score", "dataset", "c2").read_text())
    table = pa.ipc.open_file(workspace.path("score", "images", "c2")).read_all()
    pixels = np.array(table["image"].to_pylist(), np.float32).reshape(-1, *facts["shape"]) / 255
    return table["id"].to_numpy(), torch.from_numpy((pixels - np.float32(facts["mean"])) / np.float32(facts["std"]))


def probs(workspace: Workspace, cycle: str, images: torch.Tensor) -> np.ndarray:
    """One forward of one batch, through a network filled from the model's file."""
    network = SmallCnn(width=workspace.pipeline.params["prepare"]["model"]["width"]).build(10, tuple(images.shape[1:]))
    network.load_state_dict(load_file(workspace.path("train", "model", cycle)))
    with torch.no_grad():
        outputs: np.ndarray = network.eval()(images).double().softmax(1).numpy()
    return outputs


def unlabeled(workspace: Workspace) -> np.ndarray:
    pool = tables.read(workspace.path("score", "pool", "c2"), tables.POOL)["id"].to_pylist()
    labeled = tables.read(workspace.path("score", "labeled", "c2"), tables.LABELED)["id"].to_pylist()
    return np.array(sorted(set(pool) - set(labeled)))


def test_cod_is_what_two_models_and_a_norm_give_by_hand(workspace: Workspace) -> None:
    everyone, images = all_images(workspace)
    ids = unlabeled(workspace)
    images = images[np.searchsorted(everyone, ids)]
    moved = np.sqrt(((probs(workspace, "c2", images) - probs(workspace, "c1", images)) ** 2).sum(1))

    found = tables.read(workspace.path("score", "scores", "c2"), tables.SCORES)
    assert found["id"].to_numpy().tolist() == ids.tolist()
    assert found["score"].to_numpy() == pytest.approx(moved, abs=1e-6)

    asked = tables.read(workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_pylist()
    assert asked == sorted(ids, key=lambda i: -moved[np.searchsorted(ids, i)])[: len(asked)]


def test_the_first_cycle_measures_against_the_untrained_model_and_wants_the_smallest(workspace: Workspace) -> None:
    workspace.change(**{"score.strategy": {"name": "cod", "first_cycle": "smallest"}})
    workspace.run("score", "c1")
    everyone, images = all_images(workspace)
    found = tables.read(workspace.path("score", "scores", "c1"), tables.SCORES)
    images = images[np.searchsorted(everyone, found["id"].to_numpy())]
    untrained = SmallCnn(width=4).build(10, (1, 8, 8))
    untrained.load_state_dict(load_file(workspace.path("prepare", "model")))
    with torch.no_grad():
        before = untrained.eval()(images).double().softmax(1).numpy()
    assert found["score"].to_numpy() == pytest.approx(
        -np.linalg.norm(probs(workspace, "c1", images) - before, axis=1), abs=1e-6
    )


@pytest.mark.parametrize("batch_size", [7, 64, 100, 1024])
def test_scores_and_outputs_are_the_same_bytes_for_every_batch_size(workspace: Workspace, batch_size: int) -> None:
    expected = [path.read_bytes() for path in workspace.outputs("score", "c2")]
    workspace.change(**{"score.batch_size": batch_size})
    workspace.run("score", "c2")
    outputs, scores = workspace.outputs("score", "c2")
    assert [outputs.read_bytes(), scores.read_bytes()] == expected


def test_random_scores_differ_from_cycle_to_cycle_and_not_from_run_to_run(workspace: Workspace) -> None:
    workspace.change(**{"score.strategy": {"name": "random"}})
    for cycle in ("c1", "c2"):
        workspace.run("score", cycle)
    first, second = (
        tables.read(workspace.path("score", "scores", cycle), tables.SCORES)["score"].to_numpy()
        for cycle in ("c1", "c2")
    )
    assert not np.isin(second, first).any()
    workspace.run("score", "c2")
    assert np.array_equal(
        tables.read(workspace.path("score", "scores", "c2"), tables.SCORES)["score"].to_numpy(), second
    )


def test_outputs_say_which_cycle_they_are_of(workspace: Workspace) -> None:
    for cycle, argument in (("c1", "previous_outputs"), ("c2", "previous_outputs"), ("c2", "outputs")):
        schema = pq.read_schema(workspace.path("score", argument, cycle))
        assert tables.metadata(schema) == {
            "cycle": {"c1previous_outputs": "init", "c2previous_outputs": "c1", "c2outputs": "c2"}[cycle + argument]
        }


def scored(workspace: Workspace, cycle: str = "c2", **changes: object) -> dict[int, float]:
    workspace.change(**{f"score.{key}": value for key, value in changes.items()})
    workspace.run("score", cycle)
    table = tables.read(workspace.path("score", "scores", cycle), tables.SCORES)
    return dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))


def filled(workspace: Workspace, prefix: str, cycle: str = "c2") -> Network:
    """A network of the weights that training kept beside the model, read without our code."""
    tensors = load_file(workspace.path("train", "auxiliary", cycle))
    network = SmallCnn(width=4).build(10, (1, 8, 8)).eval()
    network.load_state_dict(
        {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    )
    return network


def moved_from(workspace: Workspace, network: Network, cycle: str = "c2") -> np.ndarray:
    """What every unlabelled image of the cycle moved by, from this network to the cycle's model."""
    everyone, images = all_images(workspace)
    ids = tables.read(workspace.path("score", "scores", cycle), tables.SCORES)["id"].to_numpy()
    images = images[np.searchsorted(everyone, ids)]
    with torch.no_grad():
        before = network(images).double().softmax(1).numpy()
    distance: np.ndarray = np.linalg.norm(probs(workspace, cycle, images) - before, axis=1)
    return distance


def test_the_last_cycle_s_outputs_are_the_same_kept_or_recomputed(workspace: Workspace) -> None:
    kept = scored(workspace)
    assert scored(workspace, previous="recomputed") == kept


def test_a_subset_of_the_pool_is_scored_as_the_whole_would_be(workspace: Workspace) -> None:
    whole = scored(workspace)
    some = scored(workspace, subset=100)
    assert len(some) == 100
    assert {i: whole[i] for i in some} == some
    assert scored(workspace, previous="recomputed") == some
    assert pq.read_table(workspace.path("score", "outputs", "c2"))["id"].to_pylist() == list(some)
    assert list(scored(workspace, "c1", previous="kept")) != list(some)


def test_a_random_view_changes_the_scores_and_repeats_itself(workspace: Workspace) -> None:
    plain = scored(workspace, previous="recomputed")
    seen = scored(workspace, augment={"crop": 1, "flip": True})
    assert seen != plain
    assert scored(workspace) == seen


def test_a_view_that_the_last_model_did_not_see_is_refused(workspace: Workspace) -> None:
    with pytest.raises(
        UserError, match="expected previous: recomputed beside augment: both models must see the same view"
    ):
        scored(workspace, augment={"crop": 1})


def test_emaod_is_what_the_average_gives_by_hand(workspace: Workspace) -> None:
    found = scored(workspace, strategy={"name": "emaod"})
    average = filled(workspace, "companion.average.module.")
    assert list(found.values()) == pytest.approx(moved_from(workspace, average), abs=1e-6)
    assert max(found.values()) > 1e-3


def test_tod_is_what_a_snapshot_gives_by_hand(workspace: Workspace) -> None:
    workspace.change(**{"train.snapshots": [3, 7]})
    workspace.run("train", "c2")
    found = scored(workspace, strategy={"name": "tod", "steps": 7})
    assert list(found.values()) == pytest.approx(moved_from(workspace, filled(workspace, "snapshot.7.")), abs=1e-6)
    assert max(found.values()) > 1e-3
    assert scored(workspace, strategy={"name": "tod", "steps": 3}) != found


def test_a_committee_is_this_model_and_the_snapshots_of_its_training(workspace: Workspace) -> None:
    workspace.change(**{"train.snapshots": [3, 7, 20]})
    workspace.run("train", "c2")
    found = scored(workspace, strategy={"name": "qbc", "by": "variation_ratio", "members": [3, 20]})
    everyone, images = all_images(workspace)
    images = images[np.searchsorted(everyone, list(found))]
    with torch.no_grad():
        others = [filled(workspace, f"snapshot.{steps}.")(images).double().softmax(1).numpy() for steps in (3, 20)]
    ballots = np.stack([each.argmax(1) for each in (probs(workspace, "c2", images), *others)])
    against = [1 - np.bincount(ballot).max() / 3 for ballot in ballots.T]
    assert list(found.values()) == pytest.approx(against, abs=1e-5)
    assert len(set(against)) > 1
    assert len(set(found.values())) > len(found) // 2


def test_the_first_cycle_can_measure_against_an_independent_network(workspace: Workspace) -> None:
    found = scored(workspace, "c1", strategy={"name": "cod", "first_cycle": "independent"})
    stranger = SmallCnn(width=4).initial(10, (1, 8, 8), derive(0, "independent")).eval()
    assert list(found.values()) == pytest.approx(-moved_from(workspace, stranger, "c1"), abs=1e-6)
    assert not torch.equal(stranger.head.weight, load_file(workspace.path("prepare", "model"))["head.weight"])


def test_emaod_without_an_average_and_tod_without_its_snapshot_are_refused(workspace: Workspace) -> None:
    workspace.change(**{"train.objective": {"name": "none"}, "train.snapshots": [3]})
    workspace.run("train", "c2")
    with pytest.raises(UserError, match=r"emaod compares with a moving average; expected train\.objective \{name: ema"):
        scored(workspace, strategy={"name": "emaod"})
    with pytest.raises(
        UserError,
        match=r"score\.strategy: found 100 steps before the end, but train\.snapshots keeps 3; expected one of them",
    ):
        scored(workspace, strategy={"name": "tod"})


def test_mc_dropout_is_what_masked_features_give_by_hand(workspace: Workspace) -> None:
    found = scored(workspace, strategy={"name": "mc_dropout", "passes": 4, "dropout": 0.25})
    everyone, images = all_images(workspace)
    network = SmallCnn(width=4).build(10, (1, 8, 8)).eval()
    network.load_state_dict(load_file(workspace.path("train", "model", "c2")))
    with torch.no_grad():
        features = network.body(images[np.searchsorted(everyone, list(found))])
        kept = (
            torch.rand(4, features.shape[1], generator=torch.Generator().manual_seed(derive(0, "dropout", "c2")))
            >= 0.25
        )
        mean = torch.stack([network.head(features * mask / 0.75).double().softmax(1) for mask in kept]).mean(0).numpy()
    assert list(found.values()) == pytest.approx(entr(mean).sum(1), abs=1e-6)


@pytest.mark.parametrize("name", ["mc_dropout", "bald"])
def test_stochastic_passes_give_the_same_bits_for_every_batch_size_and_other_ones_in_every_cycle(
    workspace: Workspace, name: str
) -> None:
    whole = scored(workspace, strategy={"name": name}, batch_size=1024)
    assert scored(workspace, batch_size=7) == whole
    assert min(whole.values()) >= 0
    workspace.path("score", "model", "c1").write_bytes(workspace.path("score", "model", "c2").read_bytes())
    before = scored(workspace, "c1")
    assert not any(before[i] == score for i, score in whole.items() if score > 1e-3)


CONTROL = {"strategy": {"name": "true_loss"}, "truth": "oracle"}


def answers(workspace: Workspace) -> dict[int, int]:
    table = tables.read(workspace.path("prepare", "oracle"), tables.ORACLE)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def test_a_campaign_by_the_true_loss_asks_for_the_images_of_the_largest_loss(workspace: Workspace) -> None:
    workspace.change(**{f"score.{key}": value for key, value in CONTROL.items()})
    for cycle in ("c1", "c2"):
        for stage in ("train", "score", "select", "annotate", "merge", "diagnose"):
            workspace.run(stage, cycle)
        everyone, images = all_images(workspace)
        labeled = set(tables.read(workspace.path("score", "labeled", cycle), tables.LABELED)["id"].to_pylist())
        truth = {i: label for i, label in answers(workspace).items() if i not in labeled}
        said = probs(workspace, cycle, images[np.searchsorted(everyone, list(truth))])
        lost = dict(zip(truth, -np.log(said[np.arange(len(truth)), list(truth.values())]), strict=True))
        asked = tables.read(workspace.path("select", "query", cycle), tables.QUERY)["id"].to_pylist()
        assert asked == sorted(lost, key=lambda i: -lost[i])[: len(asked)]
        told = json.loads(workspace.path("diagnose", "diagnostics", cycle).read_text())
        assert told["spearman"] == told["capture_gain"] == pytest.approx(1)
    assert labeled > set(tables.read(workspace.path("select", "query", "c1"), tables.QUERY)["id"].to_pylist())


def test_the_true_loss_is_the_same_of_a_subset_and_for_every_batch_size(workspace: Workspace) -> None:
    whole = scored(workspace, **CONTROL)
    assert scored(workspace, batch_size=7) == whole
    some = scored(workspace, subset=20)
    assert {i: whole[i] for i in some} == some


def test_the_stage_gives_answers_to_the_true_loss_alone(workspace: Workspace) -> None:
    with pytest.raises(
        UserError, match=r"score\.truth: found 'oracle', expected pool: entropy must not see the answers$"
    ):
        scored(workspace, strategy={"name": "entropy"}, truth="oracle")
    with pytest.raises(
        UserError,
        match=r"score\.truth: found 'pool', expected oracle: true_loss is told the answers, and the pool has none$",
    ):
        scored(workspace, strategy={"name": "true_loss"}, truth="pool")


def test_the_true_loss_of_an_image_whose_answer_is_not_known_is_refused(workspace: Workspace) -> None:
    unknown = unlabeled(workspace)[3]
    known = {i: label for i, label in answers(workspace).items() if i != unknown}
    tables.write(
        pa.table([list(known), list(known.values())], schema=tables.ORACLE),
        tables.ORACLE,
        workspace.path("prepare", "oracle"),
    )
    with pytest.raises(DataError, match=rf"^data/oracle\.parquet: has no label for id {unknown}$"):
        scored(workspace, **CONTROL)


def test_a_strategy_that_is_not_told_the_answers_has_their_file_left_shut(workspace: Workspace) -> None:
    expected = workspace.path("score", "scores", "c2").read_bytes()
    workspace.path("score", "scores", "c2").unlink()
    shut = workspace.root / "shut.parquet"
    shut.write_bytes(b"nobody may read this")
    workspace.run("score", "c2", truth=shut)
    assert workspace.path("score", "scores", "c2").read_bytes() == expected
