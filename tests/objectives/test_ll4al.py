"""Loss prediction: the ranking loss by hand, its gradients, and whether the predictions rank true losses in the end."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from codline.core.errors import UserError
from codline.data.dense_outputs import IGNORE_INDEX
from codline.data.masks import encode_mask
from codline.learning import auxiliary_networks, inference, task_loss
from codline.learning.fit import TrainingData, fit
from codline.learning.inference import Normalize, RequestedOutputs
from codline.learning.recipe import Recipe
from codline.models.networks.loss_predictor import LossPredictor, predictor_from_tensors
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet
from codline.objectives.base import TrainingBatch, TrainingContext
from codline.objectives.ll4al import Ll4alObjective
from codline.strategies.base import Outputs, PoolChunk
from codline.strategies.ll4al import Ll4al

SHAPE = (1, 8, 8)
CONTEXT = TrainingContext(SHAPE)
NORMALIZE = Normalize([0.3], [0.3], torch.device("cpu"))
PREDICTED, LOSSES = torch.tensor([1.0, 5.0, 2.0, 2.0]), torch.tensor([9.0, 3.0, 1.0, 4.0])


def make_recipe(**changes: Any) -> Recipe:
    settings = {
        "epochs": 12,
        "batch_size": 25,
        "learning_rate": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "decay_at": 0.8,
        "decay_by": 0.1,
        "start_from": "previous",
        "augment": {},
        "objectives": [{"name": "ll4al", "width": 16}],
    }
    return Recipe.model_validate(settings | changes)


def easy_and_hard_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The class of a bright image is visible in its upper half; that of a dark one cannot be known."""
    rng = np.random.default_rng(0)
    labels, is_bright = rng.integers(2, size=count), rng.random(count) < 0.5
    images = rng.integers(0, 40, (count, *SHAPE))
    images[:, :, :4] += (160 * labels * is_bright)[:, None, None, None]
    images[:, :, 4:] += (160 * is_bright)[:, None, None, None]
    return images.astype(np.uint8), labels.astype(np.int32)


def test_loss_predictor_pools_the_stages_over_their_pixels() -> None:
    predictor = LossPredictor([2, 3], width=4)
    dense, flat = torch.randn(5, 2, 6, 6), torch.randn(5, 3)
    pairs = zip(predictor.branches, (dense.mean((2, 3)), flat), strict=True)
    hidden = [torch.relu(branch(mean)) for branch, mean in pairs]
    assert torch.allclose(predictor([dense, flat]), predictor.last(torch.cat(hidden, 1))[:, 0])


def test_loss_predictor_is_rebuilt_from_its_tensors() -> None:
    predictor = LossPredictor([2, 3, 7], width=4)
    stages = [torch.randn(5, channels) for channels in (2, 3, 7)]
    auxiliary = {f"objective.ll4al.predictor.{key}": value for key, value in predictor.state_dict().items()}
    assert torch.equal(auxiliary_networks.load_loss_predictor(auxiliary)(stages), predictor(stages))
    assert torch.equal(predictor_from_tensors(predictor.state_dict())(stages), predictor(stages))


def test_loss_predictor_that_training_did_not_keep_is_refused() -> None:
    refusal = r"score\.strategy: it needs predicted losses; expected \{name: ll4al\} among train\.objectives"
    with pytest.raises(UserError, match=refusal):
        auxiliary_networks.load_loss_predictor({"objective.ema.average.module.weight": torch.ones(1)})


def test_hinge_ranking_pairs_the_first_image_with_the_last() -> None:
    """(0, 3): in the wrong order by 1, plus the margin; (1, 2): in the right order, by 3."""
    assert float(Ll4alObjective().ranking_loss(PREDICTED, LOSSES)) == pytest.approx(((1 + 1) + 0) / 2)
    assert float(Ll4alObjective(margin=4.0).ranking_loss(PREDICTED, LOSSES)) == pytest.approx(((4 + 1) + (4 - 3)) / 2)


def test_logistic_ranking_is_the_cross_entropy_of_the_order() -> None:
    expected = (np.log1p(np.exp(1)) + np.log1p(np.exp(-3))) / 2
    assert float(Ll4alObjective(ranking="logistic").ranking_loss(PREDICTED, LOSSES)) == pytest.approx(expected)


def test_ranking_loss_leaves_out_the_last_of_an_odd_number_of_images() -> None:
    predicted, losses = torch.tensor([1.0, 2.0, 50.0]), torch.tensor([4.0, 3.0, 1.0])
    assert float(Ll4alObjective().ranking_loss(predicted, losses)) == 2
    assert float(Ll4alObjective().ranking_loss(predicted[:1], losses[:1])) == 0


def test_ranking_loss_of_images_with_equal_losses_has_no_gradient() -> None:
    predicted = torch.tensor([1.0, 2.0], requires_grad=True)
    Ll4alObjective().ranking_loss(predicted, torch.ones(2)).backward()  # type: ignore[no-untyped-call]
    assert predicted.grad is not None
    assert predicted.grad.abs().sum() == 0


@pytest.mark.parametrize(("progress", "trains_network"), [(0.0, True), (0.59, True), (0.6, False), (0.9, False)])
def test_ranking_loss_trains_the_network_until_detach_at(progress: float, trains_network: bool) -> None:
    network = Network(nn.Linear(2, 4), nn.Linear(4, 3), stages=("",))
    auxiliary = Ll4alObjective(width=4).make_auxiliary(network, TrainingContext((2,)))
    images = torch.randn(6, 2)
    stages, features, logits = network.forward_with_stages(images)
    batch = TrainingBatch(images, features, logits, stages, torch.arange(6.0))
    auxiliary.start_step(progress)
    auxiliary.loss(batch, batch).backward()  # type: ignore[no-untyped-call]
    assert (network.body.weight.grad is not None) == trains_network
    assert all(parameter.grad is not None for parameter in auxiliary.trainable_parameters())


def test_counting_the_stages_channels_changes_no_statistics() -> None:
    network = SmallCnn(width=2).seeded_network(3, SHAPE, 0).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    auxiliary = Ll4alObjective().make_auxiliary(network, CONTEXT)
    assert [branch.in_features for branch in auxiliary.predictor.branches] == [2, 4, 4, 8]
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("persists", [True, False])
def test_loss_predictor_continues_from_the_previous_cycle_if_it_persists(persists: bool) -> None:
    network = SmallCnn(width=2).seeded_network(3, SHAPE, 0)
    previous = Ll4alObjective().make_auxiliary(network, CONTEXT)
    context = TrainingContext(SHAPE, previous_auxiliary={"ll4al": previous.state_dict()})
    current = Ll4alObjective(persists=persists).make_auxiliary(network, context)
    assert torch.equal(current.predictor.last.weight, previous.predictor.last.weight) == persists


def test_image_losses_have_the_task_loss_as_their_mean() -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert torch.allclose(task_loss.losses_per_image(logits, labels).mean(), task_loss.mean_loss(logits, labels))
    dense, masks = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    masks[0, :2], masks[1] = IGNORE_INDEX, IGNORE_INDEX
    losses = task_loss.losses_per_image(dense, masks)
    assert torch.allclose(losses[0], task_loss.mean_loss(dense[:1], masks[:1]))
    assert losses[1] == 0


def test_ll4al_strategy_scores_by_the_predicted_loss() -> None:
    predicted = np.array([0.5, -1.0, 3.0], np.float32)
    outputs = Outputs(np.zeros((3, 2)), np.full((3, 2), 0.5))
    chunk = PoolChunk(np.arange(3), outputs, predicted_losses=predicted)
    assert Ll4al().scores(chunk, np.random.default_rng(0)).tolist() == [0.5, -1.0, 3.0]


def test_predicted_losses_rank_the_true_losses_of_unlabeled_images() -> None:
    images, labels = easy_and_hard_images(600)
    network, ids = SmallCnn(width=4).seeded_network(2, SHAPE, 0), np.arange(600)
    data = TrainingData(images.__getitem__, ids[:300], labels[:300], ids[300:], NORMALIZE)
    final = fit(network, data, make_recipe(), CONTEXT, seed=0)
    requested = RequestedOutputs(loss_predictor=auxiliary_networks.load_loss_predictor(final.tensors))
    (batch,) = inference.forward_batches([network], images.__getitem__, ids[300:], NORMALIZE, 300, requested)
    true_losses = task_loss.losses_per_image(torch.from_numpy(batch.logits[0]), torch.from_numpy(labels[300:]).long())
    assert batch.predicted_losses is not None
    assert spearmanr(batch.predicted_losses, true_losses.numpy()).statistic > 0.5


def test_predicted_losses_do_not_depend_on_the_batch_size_and_do_not_change_the_logits() -> None:
    images, _ = easy_and_hard_images(30)
    network, predictor = SmallCnn(width=4).seeded_network(2, SHAPE, 0), LossPredictor([4, 8, 8, 16], 8)
    logits, predicted = [], []
    for batch_size, loss_predictor in ((30, None), (30, predictor), (7, predictor)):
        requested = RequestedOutputs(loss_predictor=loss_predictor)
        batches = list(
            inference.forward_batches([network], images.__getitem__, np.arange(30), NORMALIZE, batch_size, requested)
        )
        logits.append(np.concatenate([batch.logits[0] for batch in batches]))
        predicted.append([batch.predicted_losses for batch in batches])
    assert np.array_equal(logits[0], logits[1])
    assert predicted[0] == [None]
    assert np.array_equal(np.concatenate(predicted[1]), np.concatenate(predicted[2]))


def test_ll4al_trains_without_unlabeled_images() -> None:
    images, labels = easy_and_hard_images(40)
    taken: list[int] = []

    def take(ids: np.ndarray) -> np.ndarray:
        taken.extend(ids.tolist())
        return images[ids]

    data = TrainingData(take, np.arange(20), labels[:20], np.arange(20, 40), NORMALIZE)
    fit(SmallCnn(width=2).seeded_network(2, SHAPE, 0), data, make_recipe(epochs=1), CONTEXT, seed=0)
    assert set(taken) == set(range(20))


def test_losses_of_segmentations_are_predicted() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, *SHAPE), np.uint8)
    masks = np.array([encode_mask(mask) for mask in rng.integers(0, 3, (8, 8, 8)).astype(np.uint8)], object)
    network = SmallUnet(width=2).seeded_network(3, SHAPE, 0)
    data = TrainingData(images.__getitem__, np.arange(8), masks, np.arange(8, 12), NORMALIZE)
    final = fit(network, data, make_recipe(epochs=1), CONTEXT, seed=0)
    predictor = auxiliary_networks.load_loss_predictor(final.tensors)
    requested = RequestedOutputs(subsample=True, loss_predictor=predictor)
    (batch,) = inference.forward_batches([network], images.__getitem__, np.arange(8, 12), NORMALIZE, 4, requested)
    assert batch.predicted_losses is not None
    assert batch.predicted_losses.shape == (4,)
    assert final.curve[0]["unsupervised_loss"] > 0
