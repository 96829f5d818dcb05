"""Contract of every objective: two processes that share each batch take the steps that one process takes.

Without batch norm and dropout, which see the images of one process. Steps are compared by the weights after an epoch
with the learning rate 1, so by the gradients. Batches of 10, 10 and 7 images have 5, 5 and 3 pairs: none can be halved.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from codline.core.params import Compute
from codline.data.masks import encode_mask
from codline.learning.fit import TrainingData, TrainingState, fit
from codline.learning.inference import Normalize
from codline.learning.recipe import Recipe
from codline.learning.training_processes import Fit, open_fit
from codline.models.networks.network import Network
from codline.objectives.base import Objective, TrainingContext
from codline.objectives.ema import EmaObjective
from tests.contracts.test_every_objective import OBJECTIVES
from tests.families import variant_id

SHAPE, CLASSES, IMAGES = (1, 6, 6), 3, 60
KINDS = list({type(objective): objective for objective in OBJECTIVES}.values())  # one of each
each_objective = pytest.mark.parametrize("objective", OBJECTIVES, ids=variant_id)


@pytest.fixture(scope="module")
def fit_in_two(fork_server_environment: dict[str, str]) -> Iterator[Fit]:
    """The two processes of all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fork_server_environment.items():
            patch.setenv(name, value)
        with open_fit(2, Compute(device="cpu")) as fit_in_processes:
            yield fit_in_processes


def make_classifier(seed: int) -> Network:
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten())
    return Network(body, nn.Linear(64, CLASSES), stages=("0", "1"))


def make_segmenter(seed: int) -> Network:
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh())
    return Network(body, nn.Conv2d(4, CLASSES, 1), stages=("0", "1"))


def make_data(labeled: int, has_masks: bool = False) -> TrainingData:
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (IMAGES, *SHAPE), np.uint8), rng.integers(0, CLASSES, labeled, np.int32)
    if has_masks:
        masks = rng.integers(0, CLASSES, (labeled, *SHAPE[1:]), np.uint8)
        masks[: labeled // 3, 2:] = 255  # the number of pixels with a class differs from image to image
        labels = np.array([*map(encode_mask, masks), None], dtype=object)[:-1]
    ids, normalize = np.arange(IMAGES), Normalize([0.5], [0.3], torch.device("cpu"))
    return TrainingData(pixels.__getitem__, ids[:labeled], labels, ids[labeled:], normalize, CLASSES)


def make_recipe(*objectives: Objective, **changes: Any) -> Recipe:
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 10, "learning_rate": 1.0, "momentum": 0.0}
    settings |= {"weight_decay": 0.0, "decay_at": 1.0, "decay_by": 1.0, "start_from": "previous"}
    settings |= {"augment": {"crop": 1, "flip": True}, "objectives": [each.model_dump() for each in objectives]}
    return Recipe.model_validate(settings | changes)


def assert_same_training(fit_in_two: Fit, network: Network, data: TrainingData, recipe: Recipe) -> TrainingState:
    context = TrainingContext(SHAPE, copy.deepcopy(network), partial(copy.deepcopy, network))
    ours, theirs = (train(copy.deepcopy(network), data, recipe, context, seed=3) for train in (fit_in_two, fit))
    for key, value in theirs.tensors.items():
        if not key.startswith("random."):
            assert ours.tensors[key].numpy() == pytest.approx(value.numpy(), rel=1e-4, abs=1e-5), key
    for our_row, their_row in zip(ours.curve, theirs.curve, strict=True):
        assert our_row == pytest.approx(their_row, rel=1e-4)
    assert not torch.equal(ours.tensors["network.head.weight"], network.head.weight)
    return ours


@each_objective
def test_two_processes_take_the_steps_of_one(fit_in_two: Fit, objective: Objective) -> None:
    final = assert_same_training(fit_in_two, make_classifier(0), make_data(27), make_recipe(objective))
    assert (final.curve[0]["unsupervised_loss"] > 0) == (getattr(objective, "weight", 1) > 0)


@pytest.mark.parametrize("objective", [each for each in KINDS if each.dense], ids=variant_id)
def test_two_processes_take_the_steps_of_one_in_segmentation(fit_in_two: Fit, objective: Objective) -> None:
    assert_same_training(fit_in_two, make_segmenter(0), make_data(27, has_masks=True), make_recipe(objective))


@pytest.mark.parametrize("labeled", [2, 3, 5])
@pytest.mark.parametrize("unlabeled", [0, 2, 3])
def test_two_processes_take_the_steps_of_one_with_few_images(fit_in_two: Fit, labeled: int, unlabeled: int) -> None:
    data = make_data(labeled)
    few = replace(data, unlabeled_ids=data.unlabeled_ids[:unlabeled])
    assert_same_training(fit_in_two, make_classifier(0), few, make_recipe(*KINDS, epochs=2))


def test_two_processes_take_the_steps_of_one_with_adam_and_other_settings(fit_in_two: Fit) -> None:
    recipe = make_recipe(
        EmaObjective(fixed_first_batch=True), epochs=3, optimizer="adam", learning_rate=0.01, snapshots=[4, 1]
    )
    final = assert_same_training(fit_in_two, make_classifier(0), make_data(27), recipe)
    assert {"snapshot.4.head.weight", "snapshot.1.head.weight"} <= final.tensors.keys()
