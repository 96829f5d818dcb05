"""fit(): the training of one cycle, exact to the bit, whether it ran through or was killed and resumed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.augment import Augment
from codline.errors import TrainingError
from codline.inference import Normalize, Take, stretches
from codline.objectives import AnyObjective
from codline.params import Section


class Recipe(Section):
    """How to train: stochastic gradient descent with one step of decay, as in the paper."""

    epochs: PositiveInt
    batch_size: int = Field(ge=2)
    learning_rate: PositiveFloat
    momentum: float = Field(ge=0, lt=1)
    weight_decay: NonNegativeFloat
    decay_at: float = Field(gt=0, le=1)  # the share of the epochs after which the learning rate falls
    decay_by: float = Field(gt=0, le=1)
    start_from: Literal["previous", "fresh"]  # the last cycle's weights, or the untrained ones again
    augment: Augment
    objective: AnyObjective


@dataclass(frozen=True)
class Examples:
    take: Take
    labeled: np.ndarray  # ids
    labels: np.ndarray
    unlabeled: np.ndarray  # ids
    normalize: Normalize


@dataclass
class Progress:
    """All that training carries from one epoch to the next."""

    epoch: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)


def fit(network: nn.Module, examples: Examples, recipe: Recipe, *, seed: int, resume: Progress | None, on_epoch: Callable[[Progress], None]) -> Progress:
    """Train in place. `on_epoch` sees the whole state after each epoch and may keep it; given back as `resume`, training goes on from there."""
    device = examples.normalize.device
    torch.manual_seed(seed)  # what the network draws itself, such as dropout
    generator = torch.Generator().manual_seed(seed)  # shuffles and augmentation
    network.to(device).train()
    companion = recipe.objective.companion(network)
    if companion is not None:
        companion.to(device)
    optimizer = torch.optim.SGD(network.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay)
    milestone = max(1, round(recipe.decay_at * recipe.epochs))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [milestone], recipe.decay_by)
    progress = resume or Progress()
    if resume is not None:
        restore(resume, network, companion, optimizer, generator)
        schedule.last_epoch = resume.epoch
        optimizer.param_groups[0]["lr"] = recipe.learning_rate * (recipe.decay_by if resume.epoch >= milestone else 1)

    for epoch in range(progress.epoch, recipe.epochs):
        order = torch.randperm(len(examples.labeled), generator=generator).numpy()
        seen = correct = 0
        task_sum = extra_sum = torch.zeros((), device=device)
        for rows in stretches(len(order), recipe.batch_size):
            batch = order[rows]
            labels = torch.from_numpy(examples.labels[batch].astype(np.int64)).to(device)
            logits = network(augmented(examples.labeled[batch], examples, recipe, generator))
            task = functional.cross_entropy(logits, labels)
            extra = torch.zeros((), device=device)
            if companion is not None and len(examples.unlabeled) > 1:
                drawn = torch.randint(len(examples.unlabeled), (recipe.batch_size,), generator=generator).numpy()
                images = augmented(examples.unlabeled[drawn], examples, recipe, generator)
                # A forward of its own: labelled and unlabelled images must not share batch-norm statistics.
                extra = recipe.objective.loss(network(images), companion.logits(images))
            optimizer.zero_grad()
            (task + extra).backward()
            optimizer.step()
            if companion is not None:
                companion.update(network)
            seen += len(batch)
            correct = correct + (logits.argmax(1) == labels).sum()
            task_sum, extra_sum = task_sum + task.detach() * len(batch), extra_sum + extra.detach() * len(batch)
        total = float(task_sum + extra_sum)
        # The last step's weights have seen no loss yet: without looking at them a broken model could be kept as good.
        if not math.isfinite(total) or not all(bool(value.isfinite().all()) for value in network.state_dict().values()):
            where = f"epoch {epoch + 1} of {recipe.epochs}"
            raise TrainingError(f"training diverged in {where}: the loss is {total / seen}; lower train.learning_rate (now {recipe.learning_rate})")
        rate = float(optimizer.param_groups[0]["lr"])
        schedule.step()
        row = {
            "epoch": epoch + 1,
            "learning_rate": rate,
            "task_loss": float(task_sum) / seen,
            "unsupervised_loss": float(extra_sum) / seen,
            "accuracy": float(correct) / seen,
        }
        progress = Progress(epoch + 1, snapshot(network, companion, optimizer, generator), [*progress.curve, row])
        on_epoch(progress)
    return progress


def augmented(ids: np.ndarray, examples: Examples, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Crop and flip the raw pixels, so that the border is black, then standardise."""
    images = torch.from_numpy(examples.take(ids)).to(examples.normalize.device)
    return examples.normalize(recipe.augment(images, generator))


def snapshot(network: nn.Module, companion: nn.Module | None, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> dict[str, Tensor]:
    tensors = {f"network.{key}": value for key, value in network.state_dict().items()}
    if companion is not None:
        tensors |= {f"companion.{key}": value for key, value in companion.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        if state.get("momentum_buffer") is not None:
            tensors[f"momentum.{index}"] = state["momentum_buffer"]
    streams = {"random.torch": torch.get_rng_state(), "random.data": generator.get_state()}
    if torch.cuda.is_available():
        streams["random.cuda"] = torch.cuda.get_rng_state()
    return {key: value.detach().cpu().clone() for key, value in (tensors | streams).items()}


def restore(progress: Progress, network: nn.Module, companion: nn.Module | None, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
    groups: dict[str, dict[str, Tensor]] = {}
    for key, value in progress.tensors.items():
        group, _, rest = key.partition(".")
        groups.setdefault(group, {})[rest] = value
    network.load_state_dict(groups["network"])
    if companion is not None:
        companion.load_state_dict(groups["companion"])
    state: dict[str, Any] = optimizer.state_dict()
    state["state"] = {int(index): {"momentum_buffer": value} for index, value in groups.get("momentum", {}).items()}
    optimizer.load_state_dict(state)
    torch.set_rng_state(groups["random"]["torch"])
    generator.set_state(groups["random"]["data"])
    if "cuda" in groups["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(groups["random"]["cuda"])
