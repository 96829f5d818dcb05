"""Contract of models, objectives and strategies: on a GPU, their steps have all tensors there and never wait for it.

The GPU is simulated (tests/simulated_gpu.py), so that nothing here needs one.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from codline.core.errors import UserError
from codline.data.masks import encode_mask
from codline.learning import task_loss
from codline.learning.augmentation import Augmentation
from codline.learning.fit import TrainingData, TrainingRun
from codline.learning.gradient_norm import GradientSample
from codline.learning.inference import Normalize, RequestedOutputs, forward_batches
from codline.learning.recipe import Recipe
from codline.models.base import ModelSpec
from codline.models.networks.loss_predictor import LossPredictor
from codline.objectives.base import Objective, TrainingContext
from codline.objectives.ema import EmaObjective
from codline.objectives.modules.loss_prediction import stage_channels
from codline.strategies.base import BatchStrategy
from tests.contracts.test_every_batch_strategy import shorten_training
from tests.families import variant_id, variants
from tests.pools import make_pool
from tests.simulated_gpu import DEVICE, FROM_HOST, TO_HOST, SimulatedGpu

CLASSES, SHAPE, IMAGES = 5, (3, 32, 32), 24
MODELS = [spec.model_copy(update={"width": 8}) if hasattr(spec, "width") else spec for spec in variants("models")]
OBJECTIVES = variants("objectives")
# Every objective on the first model, and one of each kind on the others.
KINDS = list({type(objective): objective for objective in OBJECTIVES}.values())
STEPS = [(MODELS[0], objective) for objective in OBJECTIVES] + [(spec, each) for spec in MODELS[1:] for each in KINDS]
each_model = pytest.mark.parametrize("spec", MODELS, ids=variant_id)
each_classifier = pytest.mark.parametrize(
    "spec", [spec for spec in MODELS if spec.task == "classification"], ids=variant_id
)
pytestmark = pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # it has no values, as intended


def make_pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (IMAGES, *SHAPE), np.uint8)


def make_data(spec: ModelSpec) -> TrainingData:
    """Half of the images are labeled: with classes, or with masks for segmentation."""
    labeled, rng = IMAGES // 2, np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, labeled, np.int32)
    if spec.task == "segmentation":
        masks = [encode_mask(mask) for mask in rng.integers(0, CLASSES, (labeled, *SHAPE[1:]), np.uint8)]
        labels = np.array(masks, dtype=object)
    return TrainingData(
        take=make_pixels().__getitem__,
        labeled_ids=np.arange(labeled),
        labels=labels,
        unlabeled_ids=np.arange(labeled, IMAGES),
        normalize=Normalize([0.5] * 3, [0.3] * 3, DEVICE),
        classes=CLASSES,
    )


def make_recipe(objective: Objective, **changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 4,
        "learning_rate": 0.05,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "decay_at": 0.8,
        "decay_by": 0.1,
        "start_from": "previous",
        "augment": Augmentation(crop=2, flip=True, size=16),
        "objectives": [objective],
    }
    return Recipe(**settings | changes)


def make_run(spec: ModelSpec, recipe: Recipe) -> TrainingRun:
    previous = spec.seeded_network(CLASSES, SHAPE, 0)
    context = TrainingContext(SHAPE, previous, lambda: spec.seeded_network(CLASSES, SHAPE, 1))
    return TrainingRun(copy.deepcopy(previous), make_data(spec), recipe, context, seed=0)


def waits_of_two_steps(spec: ModelSpec, recipe: Recipe) -> list[str]:
    with SimulatedGpu() as gpu:
        run = make_run(spec, recipe)
        gpu.waits.clear()
        for batch in (np.arange(4), np.arange(4, 8)):
            run.train_step(batch)
    return gpu.waits


def is_defined(objective: Objective, spec: ModelSpec) -> bool:
    try:
        objective.check_task(spec.task)
    except UserError:
        return False
    return True


@pytest.mark.parametrize(
    ("spec", "objective"),
    [
        pytest.param(spec, each, id=f"{variant_id(spec)}-{variant_id(each)}")
        for spec, each in STEPS
        if is_defined(each, spec)
    ],
)
def test_training_step_does_not_wait_for_the_gpu(spec: ModelSpec, objective: Objective) -> None:
    assert waits_of_two_steps(spec, make_recipe(objective)) == []


def test_training_step_with_adam_does_not_wait_for_the_gpu() -> None:
    recipe = make_recipe(EmaObjective(), optimizer="adam", momentum=0.0)
    assert waits_of_two_steps(MODELS[0], recipe) == []


def test_training_step_that_reads_a_value_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = task_loss.mean_loss

    def reading(logits: Tensor, targets: Tensor) -> Tensor:
        found = loss(logits, targets)
        return found * found.detach().item()

    monkeypatch.setattr(task_loss, "mean_loss", reading)
    assert len(waits_of_two_steps(MODELS[0], make_recipe(EmaObjective()))) == 2


def test_training_step_with_a_loss_on_the_host_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, weights = task_loss.mean_loss, torch.ones(CLASSES)
    monkeypatch.setattr(task_loss, "mean_loss", lambda logits, targets: loss(logits * weights, targets))
    with pytest.raises(AssertionError, match="two devices"):
        waits_of_two_steps(MODELS[0], make_recipe(EmaObjective()))


@each_model
def test_scoring_pass_waits_for_the_gpu_once_for_each_array_that_it_returns(spec: ModelSpec) -> None:
    with SimulatedGpu() as gpu:
        network, reference = (spec.seeded_network(CLASSES, SHAPE, seed).to(DEVICE) for seed in (0, 1))
        channels = network.body(torch.zeros(2, *SHAPE, device=DEVICE)).shape[1]
        predictor = LossPredictor(stage_channels(network, SHAPE), 4).to(DEVICE)
        requested = RequestedOutputs(True, True, torch.ones(3, channels), predictor)
        normalize, generator = Normalize([0.5] * 3, [0.3] * 3, DEVICE), torch.Generator().manual_seed(0)
        view = lambda images: Augmentation(crop=2, flip=True)(images, generator)  # noqa: E731
        gpu.waits.clear()
        batches = forward_batches(
            [network, reference], make_pixels().__getitem__, np.arange(IMAGES), normalize, 8, requested, view
        )
        arrays = 0
        for batch in batches:
            dropout_logits = [*batch.dropout_logits]
            assert [len(each) for each in (*batch.logits, *dropout_logits)] == [8] * 5
            arrays += len(batch.logits) + len(dropout_logits) + (batch.features is not None)
            arrays += batch.predicted_losses is not None
    assert [wait.partition(" at ")[0] for wait in gpu.waits] == [TO_HOST] * arrays
    assert arrays == IMAGES // 8 * 7


@each_classifier
def test_gradient_norms_are_copied_from_the_gpu_once_for_each_pool(spec: ModelSpec) -> None:
    with SimulatedGpu() as gpu:
        network = spec.seeded_network(CLASSES, SHAPE, 0).to(DEVICE)
        normalize, pools = Normalize([0.5] * 3, [0.3] * 3, DEVICE), {"labeled": np.arange(6), "unlabeled": np.arange(9)}
        sample = GradientSample(pools, 2, np.random.default_rng(0), lambda ids: make_pixels()[ids, :, :8, :8])
        gpu.waits.clear()
        sample.measure(network, normalize)
    assert [wait.partition(" at ")[0] for wait in gpu.waits] == [TO_HOST] * len(pools)


LEARNERS = [one for one in variants("strategies") if isinstance(one, BatchStrategy) and hasattr(one, "learning_rate")]


@pytest.mark.parametrize("strategy", LEARNERS, ids=variant_id)
def test_training_of_a_strategy_waits_for_the_gpu_before_and_after_its_steps_alone(strategy: BatchStrategy) -> None:
    few, many = (waits_of_query(shorten_training(strategy), steps) for steps in (2, 5))
    assert few == many
    assert {wait.partition(" at ")[0] for wait in few} <= {FROM_HOST, TO_HOST}  # weights and results


def waits_of_query(strategy: BatchStrategy, steps: int) -> list[str]:
    pool = make_pool()
    images: Callable[[np.ndarray], Tensor] = lambda ids: torch.zeros(len(ids), 1, 8, 8, device=DEVICE)  # noqa: E731
    context = replace(pool.context, images=images, device=DEVICE)
    trained = strategy.model_copy(update={"steps": steps})
    with SimulatedGpu() as gpu:
        trained.select_query(replace(pool, context=context), 7, np.random.default_rng(0))
    return gpu.waits
