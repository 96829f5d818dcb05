"""fit(): the training of one cycle, exact to the bit, whether it ran through or was killed and resumed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from codline.core.errors import TrainingError, UserError
from codline.core.params import Section
from codline.data.masks import Targets
from codline.learning import task_loss
from codline.learning.augmentation import Augment
from codline.learning.compute import multiplying
from codline.learning.inference import Normalize, Take, stretches
from codline.models.base import Network
from codline.objectives import AnyObjective
from codline.objectives.base import Batch, Beside


class Recipe(Section):
    """How to train: with one step of decay, as in the paper; by stochastic gradient descent, or by Adam, which has its own momentum (0.9, 0.999)."""

    optimizer: Literal["sgd", "adam"] = "sgd"
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
    snapshots: list[PositiveInt] = Field(default=[], max_length=8)  # so many steps before the end, the weights are kept

    @field_validator("momentum")
    @classmethod
    def one_momentum(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("optimizer") == "adam":
            raise ValueError("0 beside optimizer: adam, which has its own")
        return momentum

    def optimized(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, self.learning_rate, weight_decay=self.weight_decay)
        return torch.optim.SGD(parameters, self.learning_rate, self.momentum, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Examples:
    take: Take
    labeled: np.ndarray  # ids
    labels: np.ndarray  # class numbers, or masks as they are kept
    unlabeled: np.ndarray  # ids
    normalize: Normalize


@dataclass
class Progress:
    """All that training carries from one epoch to the next."""

    epoch: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, under the rest of their names."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}


def fit(
    network: Network,
    examples: Examples,
    recipe: Recipe,
    *,
    seed: int,
    resume: Progress | None,
    on_epoch: Callable[[Progress], None],
    beside: Beside | None = None,
) -> Progress:
    """Train in place. `on_epoch` sees the whole state after each epoch; given back as `resume`, training goes on from there.

    It is handed the tensors that are trained, not copies, for these would be as large again as all of them: it writes down what it wants to keep.
    """
    run = Run(network, examples, recipe, seed, beside or Beside())
    progress = resume or Progress()
    if resume is not None:
        run.restore(resume)
    for epoch in range(progress.epoch, recipe.epochs):
        row = run.epoch(epoch)
        progress = Progress(epoch + 1, run.state(), [*progress.curve, row])
        on_epoch(progress)
    return progress


class Run:
    """One training: the network, what is kept beside it, the optimizer, the random streams."""

    def __init__(self, network: Network, examples: Examples, recipe: Recipe, seed: int, beside: Beside) -> None:
        self.network, self.examples, self.recipe = network, examples, recipe
        self.device, self.targets = examples.normalize.device, Targets(examples.labels)
        torch.manual_seed(seed)  # what the network draws itself, such as dropout
        self.generator = torch.Generator().manual_seed(seed)  # shuffles and augmentation
        network.to(self.device).train()
        self.companion = recipe.objective.companion(
            network, replace(beside, shape=lambda: examples.take(examples.labeled[:1]).shape[1:])
        )
        if self.companion is not None:
            self.companion.to(self.device)
        self.first_cycle = beside.previous is None
        # Batch-norm's statistics are of the images that pass together, and labelled and unlabelled ones are not to share them.
        self.apart = any(isinstance(module, _BatchNorm) for module in network.modules())
        trained = [*network.parameters(), *(self.companion.trained() if self.companion else ())]
        self.optimizer = recipe.optimized(trained)
        self.milestone = max(1, round(recipe.decay_at * recipe.epochs))
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [self.milestone], recipe.decay_by)
        self.batches = len(list(stretches(len(examples.labeled), recipe.batch_size)))
        self.snapshots: dict[str, Tensor] = {}
        self.step = 0
        self.total = total = recipe.epochs * self.batches
        if recipe.snapshots and max(recipe.snapshots) > total:
            raise UserError(
                f"params.yaml: train.snapshots: found {max(recipe.snapshots)} steps before the end, but training takes only {total} steps"
            )
        self.kept_at = {total - back: back for back in recipe.snapshots}
        self.keep()

    def epoch(self, epoch: int) -> dict[str, float]:
        order = torch.randperm(len(self.examples.labeled), generator=self.generator).numpy()
        seen, correct = 0, torch.zeros((), dtype=torch.int64, device=self.device)
        task_sum = extra_sum = torch.zeros((), device=self.device)
        for rows in stretches(len(order), self.recipe.batch_size):
            batch = order[rows]
            task, extra, right = self.stepped(batch)
            seen, correct = seen + len(batch), correct + right
            task_sum, extra_sum = task_sum + task * len(batch), extra_sum + extra * len(batch)
        total = float(task_sum + extra_sum)
        # The last step's weights have seen no loss yet: without looking at them a broken model could be kept as good. A sum shows it in a tenth of the time.
        if not math.isfinite(total) or not all(
            math.isfinite(value.sum()) for value in self.network.state_dict().values()
        ):
            where, rate = f"epoch {epoch + 1} of {self.recipe.epochs}", self.recipe.learning_rate
            raise TrainingError(
                f"training diverged in {where}: the loss is {total / seen}; lower train.learning_rate (now {rate})"
            )
        rate = float(self.optimizer.param_groups[0]["lr"])
        self.schedule.step()
        sums = {"task_loss": float(task_sum), "unsupervised_loss": float(extra_sum), "accuracy": float(correct)}
        return {"epoch": epoch + 1, "learning_rate": rate} | {name: value / seen for name, value in sums.items()}

    def stepped(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the optimizer: the task loss, the unsupervised one, how many images were recognised."""
        images, wanted = self.labeled(rows)
        with multiplying(self.device):
            labeled, task, extra = self.lost(images, wanted)
        self.optimizer.zero_grad()
        (task + extra).backward()
        self.optimizer.step()
        if self.companion is not None:
            self.companion.update(self.network)
        self.step += 1
        self.keep()
        return task.detach(), extra.detach(), task_loss.right(labeled.logits, wanted)

    def lost(self, images: Tensor, wanted: Tensor) -> tuple[Batch, Tensor, Tensor]:
        """What the network says of labelled images, what that costs, and what the companion adds."""
        extra = torch.zeros((), device=self.device)
        if self.companion is not None:
            self.companion.begin(self.step / self.total)
        if self.companion is not None and self.companion.staged:
            labeled = self.staged(images, wanted)
            return labeled, task_loss.loss(labeled.logits, wanted), self.companion.loss(labeled, labeled)
        if self.companion is not None and self.companion.active and len(self.examples.unlabeled) > 1:
            labeled, unlabeled = self.seen(images, self.drawn)
            return labeled, task_loss.loss(labeled.logits, wanted), self.companion.loss(labeled, unlabeled)
        labeled = self.outputs(images)
        return labeled, task_loss.loss(labeled.logits, wanted), extra

    def seen(self, images: Tensor, drawn: Callable[[], Tensor]) -> tuple[Batch, Batch]:
        """Labelled and unlabelled images through the network: in one pass where no statistics are shared, which is quicker, else one after the other."""
        if self.apart:
            labeled = self.outputs(images)
            return labeled, self.outputs(drawn())
        both = self.outputs(torch.cat([images, drawn()]))
        cut = len(images)
        parts = [
            Batch(both.images[rows], both.features[rows], both.logits[rows]) for rows in (slice(cut), slice(cut, None))
        ]
        return parts[0], parts[1]

    def outputs(self, images: Tensor) -> Batch:
        features = self.network.body(images)
        return Batch(images, features, self.network.head(features).float())

    def staged(self, images: Tensor, wanted: Tensor) -> Batch:
        stages, features, logits = self.network.staged(images)
        logits = logits.float()
        return Batch(images, features, logits, stages, task_loss.losses(logits.detach(), wanted))

    def labeled(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Labelled images for one step, and what the network should say of them."""
        ids, wanted = self.examples.labeled[rows], self.targets(rows)
        if wanted.ndim == 1:
            return self.augmented(ids), torch.from_numpy(wanted.astype(np.int64)).to(self.device)
        pixels, masks = (torch.from_numpy(array).to(self.device) for array in (self.examples.take(ids), wanted))
        images, masks = self.recipe.augment.pair(pixels, masks, self.generator)
        return self.examples.normalize(images), masks.long()

    def drawn(self) -> Tensor:
        """Unlabelled images for one step."""
        ids, count = self.examples.unlabeled, self.recipe.objective.unlabeled_batch(self.recipe.batch_size)
        if self.first_cycle and self.recipe.objective.repeats_first_batch():
            return self.augmented(ids[:count])
        return self.augmented(ids[torch.randint(len(ids), (count,), generator=self.generator).numpy()])

    def augmented(self, ids: np.ndarray) -> Tensor:
        """Crop and flip the raw pixels, so that the border is black, then standardise."""
        images = torch.from_numpy(self.examples.take(ids)).to(self.device)
        return self.examples.normalize(self.recipe.augment(images, self.generator))

    def keep(self) -> None:
        """A snapshot, if this is a step to keep."""
        if self.step in self.kept_at:
            state = self.network.state_dict()
            self.snapshots |= {
                f"{self.kept_at[self.step]}.{key}": value.detach().cpu().clone() for key, value in state.items()
            }

    def state(self) -> dict[str, Tensor]:
        moments = {
            f"{i}.{key}": value
            for i, own in self.optimizer.state_dict()["state"].items()
            for key, value in own.items()
            if isinstance(value, Tensor)
        }
        streams = {"torch": torch.get_rng_state(), "data": self.generator.get_state()}
        if torch.cuda.is_available():
            streams["cuda"] = torch.cuda.get_rng_state()
        beside = self.companion.state_dict() if self.companion is not None else {}
        groups = {"network": self.network.state_dict(), "companion": beside, "optimizer": moments, "random": streams}
        state = {f"{group}.{key}": value for group, tensors in groups.items() for key, value in tensors.items()}
        return state | {f"snapshot.{key}": value for key, value in self.snapshots.items()}

    def restore(self, progress: Progress) -> None:
        self.network.load_state_dict(progress.part("network"))
        if self.companion is not None:
            self.companion.load_state_dict(progress.part("companion"))
        state: dict[str, Any] = self.optimizer.state_dict()
        parameters = self.optimizer.param_groups[0]["params"]
        state["state"] = {}
        for name, value in progress.part("optimizer").items():
            index, key = int(name.partition(".")[0]), name.partition(".")[2]
            # In the parameter's own order in memory, or the sums would be taken another way, with other last bits. Adam's count of steps is a single number.
            ordered = (
                torch.empty_like(parameters[index]).copy_(value) if value.shape == parameters[index].shape else value
            )
            state["state"].setdefault(index, {})[key] = ordered
        self.optimizer.load_state_dict(state)
        streams = progress.part("random")
        torch.set_rng_state(streams["torch"])
        self.generator.set_state(streams["data"])
        if "cuda" in streams and torch.cuda.is_available():
            torch.cuda.set_rng_state(streams["cuda"])
        self.snapshots = progress.part("snapshot")
        self.step = progress.epoch * self.batches
        self.schedule.last_epoch = progress.epoch
        self.optimizer.param_groups[0]["lr"] = self.recipe.learning_rate * (
            self.recipe.decay_by if progress.epoch >= self.milestone else 1
        )
