"""Losses foretold: the ranking loss by hand, when the network stops learning from it, and whether losses are foretold in the end."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from codline.core.errors import UserError
from codline.data.dense_outputs import NOTHING
from codline.data.masks import encoded
from codline.learning import auxiliary_networks, inference, task_loss
from codline.learning.fit import Examples, Recipe, Run, fit
from codline.learning.inference import Normalize, Wanted
from codline.models.base import Network
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet
from codline.objectives.base import Batch, Beside
from codline.objectives.ll4al import Ll4al
from codline.objectives.loss_predictor import LossPredictor, loaded
from codline.strategies.base import Outputs, Pool
from codline.strategies.ll4al import Ll4al as ByPredictedLoss

SHAPE = (1, 8, 8)


def test_a_loss_is_foretold_from_the_means_of_the_stages() -> None:
    predictor = LossPredictor([2, 3], width=4)
    wide, flat = torch.randn(5, 2, 6, 6), torch.randn(5, 3)
    hidden = [
        torch.relu(branch(mean)) for branch, mean in zip(predictor.branches, (wide.mean((2, 3)), flat), strict=True)
    ]
    assert torch.allclose(predictor([wide, flat]), predictor.last(torch.cat(hidden, 1))[:, 0])


def test_what_foretells_comes_back_from_its_file_s_tensors() -> None:
    predictor = LossPredictor([2, 3, 7], width=4)
    stages = [torch.randn(5, channels) for channels in (2, 3, 7)]
    kept = {f"companion.predictor.{key}": value for key, value in predictor.state_dict().items()}
    assert torch.equal(auxiliary_networks.predictor(kept)(stages), predictor(stages))
    assert torch.equal(loaded(predictor.state_dict())(stages), predictor(stages))


def test_without_it_the_strategy_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        UserError, match=r"score\.strategy: it looks at losses foretold .* expected train\.objective \{name: ll4al"
    ):
        auxiliary_networks.predictor({"companion.average.module.weight": torch.ones(1)})


def test_the_hinge_pairs_the_first_image_with_the_last() -> None:
    """(0, 3): 1 too low by the margin and twice itself; (1, 2): in order, by more than the margin."""
    predicted, losses = torch.tensor([1.0, 5.0, 2.0, 2.0]), torch.tensor([9.0, 3.0, 1.0, 4.0])
    assert float(Ll4al().ranked(predicted, losses)) == pytest.approx(((1 + 1) + 0) / 2)
    assert float(Ll4al(margin=4.0).ranked(predicted, losses)) == pytest.approx(((4 + 1) + (4 - 3)) / 2)


def test_the_logistic_ranking_is_the_cross_entropy_of_the_order() -> None:
    predicted, losses = torch.tensor([1.0, 5.0, 2.0, 2.0]), torch.tensor([9.0, 3.0, 1.0, 4.0])
    expected = (np.log1p(np.exp(1)) + np.log1p(np.exp(-3))) / 2
    assert float(Ll4al(ranking="logistic").ranked(predicted, losses)) == pytest.approx(expected)


def test_the_last_of_an_odd_number_of_images_is_left_out() -> None:
    predicted, losses = torch.tensor([1.0, 2.0, 50.0]), torch.tensor([4.0, 3.0, 1.0])
    assert float(Ll4al().ranked(predicted, losses)) == 2
    assert float(Ll4al().ranked(predicted[:1], losses[:1])) == 0


def test_images_with_the_same_loss_teach_nothing() -> None:
    predicted = torch.tensor([1.0, 2.0], requires_grad=True)
    Ll4al().ranked(predicted, torch.ones(2)).backward()  # type: ignore[no-untyped-call]
    assert predicted.grad is not None
    assert predicted.grad.abs().sum() == 0


@pytest.mark.parametrize(("share", "reached"), [(0.0, True), (0.59, True), (0.6, False), (0.9, False)])
def test_the_network_learns_from_it_until_the_given_share_of_the_training(share: float, reached: bool) -> None:
    network = Network(nn.Linear(2, 4), nn.Linear(4, 3), stages=("",))
    companion = Ll4al(width=4).companion(network, Beside(shape=lambda: (2,)))
    images = torch.randn(6, 2)
    stages, features, logits = network.staged(images)
    companion.begin(share)
    companion.loss(
        Batch(images, features, logits, stages, torch.arange(6.0)), Batch(images, features, logits)
    ).backward()  # type: ignore[no-untyped-call]
    assert (network.body.weight.grad is not None) == reached
    assert all(parameter.grad is not None for parameter in companion.trained())


def test_looking_at_the_stages_moves_no_statistics() -> None:
    network = SmallCnn(width=2).drawn(3, SHAPE, 0).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    companion = Ll4al().companion(network, Beside(shape=lambda: SHAPE))
    assert [branch.in_features for branch in companion.predictor.branches] == [2, 4, 4, 8]
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("persists", [True, False])
def test_the_module_of_the_last_cycle_is_carried_on_where_asked_for(persists: bool) -> None:
    network = SmallCnn(width=2).drawn(3, SHAPE, 0)
    left = Ll4al().companion(network, Beside(shape=lambda: SHAPE))
    now = Ll4al(persists=persists).companion(network, Beside(kept=left.state_dict(), shape=lambda: SHAPE))
    assert torch.equal(now.predictor.last.weight, left.predictor.last.weight) == persists


def test_losses_of_single_images_are_those_of_the_task() -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert torch.allclose(task_loss.losses(logits, labels).mean(), task_loss.loss(logits, labels))
    dense, masks = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    masks[0, :2], masks[1] = NOTHING, NOTHING
    found = task_loss.losses(dense, masks)
    assert torch.allclose(found[0], task_loss.loss(dense[:1], masks[:1]))
    assert found[1] == 0


def test_the_strategy_wants_the_largest_loss_foretold() -> None:
    pool = Pool(
        np.arange(3), Outputs(np.zeros((3, 2)), np.full((3, 2), 0.5)), predicted=np.array([0.5, -1.0, 3.0], np.float32)
    )
    assert ByPredictedLoss().scores(pool, np.random.default_rng(0)).tolist() == [0.5, -1.0, 3.0]


def recipe(**changes: Any) -> Recipe:
    settings = {
        "epochs": 12,
        "batch_size": 25,
        "learning_rate": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "decay_at": 0.8,
        "decay_by": 0.1,
    }
    return Recipe.model_validate(
        settings | {"start_from": "previous", "augment": {}, "objective": {"name": "ll4al", "width": 16}} | changes
    )


def hard_and_easy(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The class of a bright image is in its upper half; that of a dark one nobody can know."""
    rng = np.random.default_rng(0)
    labels, bright = rng.integers(2, size=count), rng.random(count) < 0.5
    images = rng.integers(0, 40, (count, *SHAPE))
    images[:, :, :4] += (160 * labels * bright)[:, None, None, None]
    images[:, :, 4:] += (160 * bright)[:, None, None, None]
    return images.astype(np.uint8), labels.astype(np.int32)


def test_after_training_the_losses_foretold_rank_the_true_losses_of_images_never_seen() -> None:
    images, labels = hard_and_easy(600)
    normalize, ids = Normalize([0.3], [0.3], torch.device("cpu")), np.arange(600)
    network = SmallCnn(width=4).drawn(2, SHAPE, 0)
    examples = Examples(images.__getitem__, ids[:300], labels[:300], ids[300:], normalize)
    done = fit(network, examples, recipe(), seed=0, resume=None, on_epoch=lambda _: None)
    wanted = Wanted(predictor=auxiliary_networks.predictor(done.tensors))
    seen = next(inference.passes([network], images.__getitem__, ids[300:], normalize, 300, wanted))
    assert seen.predicted is not None
    truth = task_loss.losses(torch.from_numpy(seen.logits[0]), torch.from_numpy(labels[300:]).long()).numpy()
    assert spearmanr(seen.predicted, truth).statistic > 0.5


def test_asking_for_losses_foretold_changes_nothing_else_and_does_not_depend_on_the_batches() -> None:
    images, _ = hard_and_easy(30)
    normalize, network = Normalize([0.3], [0.3], torch.device("cpu")), SmallCnn(width=4).drawn(2, SHAPE, 0)
    predictor = LossPredictor([4, 8, 8, 16], 8)
    sizes = [(30, None), (30, predictor), (7, predictor)]
    passes = [
        list(inference.passes([network], images.__getitem__, np.arange(30), normalize, size, Wanted(predictor=each)))
        for size, each in sizes
    ]
    logits = [np.concatenate([one.logits[0] for one in some]) for some in passes]
    assert np.array_equal(logits[0], logits[1])
    predicted = [np.concatenate([one.predicted for one in some if one.predicted is not None]) for some in passes[1:]]
    assert np.array_equal(predicted[0], predicted[1])


def test_no_unlabelled_image_is_drawn() -> None:
    images, labels = hard_and_easy(40)
    taken: list[int] = []

    def take(ids: np.ndarray) -> np.ndarray:
        taken.extend(ids.tolist())
        return images[ids]

    examples = Examples(
        take, np.arange(20), labels[:20], np.arange(20, 40), Normalize([0.3], [0.3], torch.device("cpu"))
    )
    Run(SmallCnn(width=2).drawn(2, SHAPE, 0), examples, recipe(), 0, Beside()).epoch(0)
    assert set(taken) == set(range(20))


def test_losses_of_segmentations_are_foretold_as_well() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, *SHAPE), np.uint8)
    masks = np.array([encoded(mask) for mask in rng.integers(0, 3, (8, 8, 8)).astype(np.uint8)], object)
    normalize, network = Normalize([0.3], [0.3], torch.device("cpu")), SmallUnet(width=2).drawn(3, SHAPE, 0)
    examples = Examples(images.__getitem__, np.arange(8), masks, np.arange(8, 12), normalize)
    done = fit(network, examples, recipe(epochs=1), seed=0, resume=None, on_epoch=lambda _: None)
    wanted = Wanted(thin=True, predictor=auxiliary_networks.predictor(done.tensors))
    (seen,) = inference.passes([network], images.__getitem__, np.arange(8, 12), normalize, 4, wanted)
    assert seen.predicted is not None
    assert seen.predicted.shape == (4,)
    assert done.curve[0]["unsupervised_loss"] > 0
