"""fit(): trains the model of one cycle. The result is the same to the last bit after a kill and a resume."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from codline.core.errors import TrainingError, UserError
from codline.data.dense_outputs import IGNORE_INDEX
from codline.data.masks import CachedTargets
from codline.data.splits import resolve_amount
from codline.learning import task_loss
from codline.learning.auxiliary_networks import OBJECTIVE, SNAPSHOT, STEPS
from codline.learning.compute import autocast
from codline.learning.inference import Normalize, TakeImages, batch_slices
from codline.learning.model_file import tensors_under
from codline.learning.optimizer import make_optimizer, optimizer_moments, restore_moments
from codline.learning.rank_group import OneProcess
from codline.learning.recipe import Recipe
from codline.models.networks.batch_parts import BatchDraws, BatchPart
from codline.models.networks.network import Network
from codline.models.networks.transfer import to_device
from codline.objectives.base import TrainingBatch, TrainingContext
from codline.objectives.modules.base import AuxiliaryModule


@dataclass(frozen=True)
class TrainingData:
    take: TakeImages
    labeled_ids: np.ndarray
    labels: np.ndarray  # class numbers, or encoded masks
    unlabeled_ids: np.ndarray
    normalize: Normalize
    classes: int = IGNORE_INDEX  # masks with a class number that is not below it are refused


@dataclass
class TrainingState:
    """All that training carries from one epoch to the next."""

    epoch: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)


def fit(
    network: Network,
    data: TrainingData,
    recipe: Recipe,
    context: TrainingContext,
    *,
    seed: int,
    resume: TrainingState | None = None,
    on_epoch: Callable[[TrainingState], None] = lambda _: None,
    group: OneProcess | None = None,
) -> TrainingState:
    """Train the network in place. Training continues from `resume`, a state that an earlier call gave to `on_epoch`.

    The state's tensors are those being trained, not copies, which would double the memory: `on_epoch` must write
    them to disk or copy them before it returns. With several processes, each calls this with its `group`.
    """
    run = TrainingRun(network, data, recipe, context, seed, group)
    state = resume or TrainingState()
    if run.group.processes > 1:
        run.rehearse_step()
    if resume is not None:
        run.restore(resume)
    for epoch in range(state.epoch, recipe.epochs):
        row = run.train_epoch(epoch)
        state = TrainingState(epoch + 1, run.tensors(), [*state.curve, row])
        on_epoch(state)
    return state


class TrainingRun:
    """The network, the objectives' auxiliary modules, the optimizer and the random streams of one training."""

    def __init__(
        self,
        network: Network,
        data: TrainingData,
        recipe: Recipe,
        context: TrainingContext,
        seed: int,
        group: OneProcess | None = None,
    ) -> None:
        self.network, self.data, self.recipe, self.seed = network, data, recipe, seed
        self.group = group or OneProcess()
        self.device, self.targets = data.normalize.device, CachedTargets(data.labels, data.classes)
        torch.manual_seed(seed)  # for random layers such as dropout
        self.generator = torch.Generator().manual_seed(seed)  # for shuffling and augmentation
        network.to(self.device).train()
        smallest = max(2, math.ceil(recipe.smallest_batch * recipe.batch_size))
        self.batches = list(batch_slices(len(data.labeled_ids), recipe.batch_size, smallest))
        self.steps_per_epoch = len(self.batches)
        self.step, self.total_steps = 0, recipe.epochs * self.steps_per_epoch
        context = replace(context, steps=self.total_steps)
        made = {objective.name: objective.make_auxiliary(network, context) for objective in recipe.objectives}
        self.auxiliary = {name: module.to(self.device) for name, module in made.items() if module is not None}
        repeats = any(objective.repeats_first_batch() for objective in recipe.objectives)
        self.repeated_ids = self.random_unlabeled_ids() if repeats and context.previous_network is None else None
        # Batch norm computes statistics over all images of a pass; labeled and unlabeled images must not share them.
        self.separate_passes = any(isinstance(module, _BatchNorm) for module in network.modules())
        additional = [each for module in self.auxiliary.values() for each in module.trainable_parameters()]
        self.optimizer = make_optimizer(recipe, [*network.parameters(), *additional])
        self.milestone = max(1, round(recipe.decay_at * recipe.epochs))
        has_unlabeled = len(data.unlabeled_ids) > 1
        self.active = [
            module
            for module in self.auxiliary.values()
            if module.has_loss and (has_unlabeled or not module.uses_unlabeled)
        ]
        self.step_losses = self.group.synchronize([network, *self.active], self.forward_losses)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [self.milestone], recipe.decay_by)
        before_end = [resolve_amount(snapshot, self.total_steps) for snapshot in recipe.snapshots]
        if before_end and max(before_end) > self.total_steps:
            raise UserError(
                f"params.yaml: train.snapshots: found {max(before_end)} steps before the end, "
                f"but training takes only {self.total_steps} steps"
            )
        self.snapshot_at = {self.total_steps - steps: steps for steps in before_end}
        self.snapshots: dict[str, Tensor] = {}
        self.step_counts = {"total": torch.tensor(self.total_steps)}
        self.save_snapshot()

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the labeled images. Returns a row of the training curve."""
        self.group.start_epoch(self.seed, epoch)
        order = torch.randperm(len(self.data.labeled_ids), generator=self.generator).numpy()
        count, correct = 0, torch.zeros((), dtype=torch.int64, device=self.device)
        task_sum = unsupervised_sum = torch.zeros((), device=self.device)
        for rows in self.batches:
            batch = order[rows]
            task, unsupervised, correct_in_batch = self.train_step(batch)
            count, correct = count + len(batch), correct + correct_in_batch
            task_sum = task_sum + task * len(batch)
            unsupervised_sum = unsupervised_sum + unsupervised * len(batch)
        task_sum, unsupervised_sum = self.group.mean(task_sum), self.group.mean(unsupervised_sum)
        correct = self.group.total(correct)
        self.raise_if_diverged(epoch, float(task_sum + unsupervised_sum), count)
        rate = float(self.optimizer.param_groups[0]["lr"])
        self.schedule.step()
        return {
            "epoch": epoch + 1,
            "learning_rate": rate,
            "task_loss": float(task_sum) / count,
            "unsupervised_loss": float(unsupervised_sum) / count,
            "accuracy": float(correct) / count,
        }

    def raise_if_diverged(self, epoch: int, loss_sum: float, count: int) -> None:
        # No loss has been computed with the last step's weights yet, so they are checked too. A sum is not finite
        # if any weight is not, and takes a tenth of the time of testing each.
        sums = torch.stack([value.sum().double() for value in self.network.state_dict().values()])
        if not math.isfinite(loss_sum) or not sums.isfinite().all():
            raise TrainingError(
                f"training diverged in epoch {epoch + 1} of {self.recipe.epochs}: the loss is {loss_sum / count}; "
                f"lower train.learning_rate (now {self.recipe.learning_rate})"
            )

    def rehearse_step(self) -> None:
        """Compute the gradients of a step and undo it.

        DistributedDataParallel adds gradients up in the order in which the first backward pass has computed them, but
        only from the second one on: with three processes, last bits would depend on where a training is resumed.
        """
        before = TrainingState(tensors={key: value.clone() for key, value in self.tensors().items()})
        task, unsupervised, _ = self.compute_losses(np.arange(len(self.data.labeled_ids))[self.batches[0]])
        (task + unsupervised).backward()
        self.restore(before)

    def train_step(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the optimizer. Returns the task loss, the unsupervised loss and the number of correct images.

        Of several processes, each returns those of its part of the batch, the losses times the weight of the part.
        """
        task, unsupervised, correct = self.compute_losses(rows)
        self.optimizer.zero_grad()
        (task + unsupervised).backward()
        self.optimizer.step()
        for module in self.auxiliary.values():
            module.update(self.network)
        self.step += 1
        self.save_snapshot()
        return task.detach(), unsupervised.detach(), correct

    def compute_losses(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        part = self.group.part(len(rows))
        images, targets = self.labeled_batch(rows, part)
        with autocast(self.device):
            return self.step_losses(images, targets, part)

    def forward_losses(self, images: Tensor, targets: Tensor, part: BatchPart) -> tuple[Tensor, Tensor, Tensor]:
        """The task loss, the sum of the objectives' losses and the number of correct images."""
        for module in self.auxiliary.values():
            module.start_step(self.step / self.total_steps)
        stage_targets = targets if any(module.uses_stages for module in self.active) else None
        added = torch.zeros((), device=self.device)
        if any(module.uses_unlabeled for module in self.active):
            pixels, unlabeled_part = self.unlabeled_batch()
            labeled, unlabeled = self.forward_both(images, self.data.normalize(pixels), stage_targets)
            labeled, unlabeled = weighted(labeled, part), weighted(unlabeled, unlabeled_part)
            for module in self.active:
                added = added + module.loss(labeled, self.with_view(unlabeled, pixels, unlabeled_part, module))
        else:
            labeled = weighted(self.forward(images, stage_targets), part)
            for module in self.active:
                added = added + module.loss(labeled, labeled)
        task = task_loss.mean_loss(labeled.logits, targets) * self.group.task_weight(targets, part)
        return task, added, task_loss.correct_count(labeled.logits, targets) * (part.image_weight > 0)

    def forward(self, images: Tensor, stage_targets: Tensor | None = None) -> TrainingBatch:
        """With the stages' outputs and the losses of the images if their targets are given."""
        if stage_targets is not None:
            stages, features, logits = self.network.forward_with_stages(images)
            losses = task_loss.losses_per_image(logits.detach().float(), stage_targets)
            return TrainingBatch(images, features, logits.float(), stages, losses)
        features = self.network.body(images)
        return TrainingBatch(images, features, self.network.head(features).float())

    def with_view(
        self, unlabeled: TrainingBatch, pixels: Tensor, part: BatchPart, module: AuxiliaryModule
    ) -> TrainingBatch:
        """The unlabeled batch, with the outputs of another view of it if the module asks for one."""
        view = module.unlabeled_view(pixels, BatchDraws(self.generator, part))
        if view is None:
            return unlabeled
        return replace(unlabeled, view_logits=self.forward(self.data.normalize(view)).logits)

    def forward_both(
        self, images: Tensor, unlabeled_images: Tensor, stage_targets: Tensor | None
    ) -> tuple[TrainingBatch, TrainingBatch]:
        """Outputs of labeled and unlabeled images: from one pass, which is faster, if they need not be separate."""
        if self.separate_passes or stage_targets is not None:
            return self.forward(images, stage_targets), self.forward(unlabeled_images)
        both = self.forward(torch.cat([images, unlabeled_images]))
        labeled, unlabeled = (
            TrainingBatch(both.images[rows], both.features[rows], both.logits[rows])
            for rows in (slice(len(images)), slice(len(images), None))
        )
        return labeled, unlabeled

    def labeled_batch(self, rows: np.ndarray, part: BatchPart) -> tuple[Tensor, Tensor]:
        """Augmented images of a part of the batch, and their targets."""
        rows = rows[part.rows]
        ids, targets = self.data.labeled_ids[rows], self.targets(rows)
        if targets.ndim == 1:
            images = self.data.normalize(self.augmented_images(ids, part))
            return images, to_device(torch.from_numpy(targets.astype(np.int64)), self.device)
        pixels, masks = (to_device(torch.from_numpy(array), self.device) for array in (self.data.take(ids), targets))
        images, masks = self.recipe.augment.with_masks(pixels, masks, self.generator, part)
        return self.data.normalize(images), masks.long()

    def unlabeled_batch(self) -> tuple[Tensor, BatchPart]:
        ids = self.random_unlabeled_ids() if self.repeated_ids is None else self.repeated_ids
        part = self.group.part(len(ids))
        return self.augmented_images(ids[part.rows], part), part

    def random_unlabeled_ids(self) -> np.ndarray:
        """Without replacement within the batch. NumPy's `choice` takes the same time for pools of any size."""
        seed = torch.randint(2**63 - 1, (), generator=self.generator)
        ids, count = self.data.unlabeled_ids, self.recipe.unlabeled_batch_size
        return np.random.default_rng(int(seed)).choice(ids, min(count, len(ids)), replace=False)

    def augmented_images(self, ids: np.ndarray, part: BatchPart) -> Tensor:
        """Not normalized yet: padding is black."""
        return self.recipe.augment(to_device(torch.from_numpy(self.data.take(ids)), self.device), self.generator, part)

    def save_snapshot(self) -> None:
        """Copy the weights if the recipe asks for a snapshot at this step."""
        before_end = self.snapshot_at.get(self.step)
        if before_end is not None:
            weights = self.network.state_dict()
            self.snapshots |= {f"{before_end}.{key}": value.detach().cpu().clone() for key, value in weights.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to resume, as `<group>.<key>`."""
        random_states = {"torch": torch.get_rng_state(), "data": self.generator.get_state()}
        if self.device.type == "cuda":
            random_states["cuda"] = torch.cuda.get_rng_state(self.device)
        groups = {
            "network": self.network.state_dict(),
            **{f"{OBJECTIVE}.{name}": module.state_dict() for name, module in self.auxiliary.items()},
            "optimizer": optimizer_moments(self.optimizer),
            "random": random_states,
            SNAPSHOT: self.snapshots,
            STEPS: self.step_counts,
        }
        return {f"{group}.{key}": value for group, tensors in groups.items() for key, value in tensors.items()}

    def restore(self, state: TrainingState) -> None:
        self.network.load_state_dict(tensors_under("network", state.tensors))
        for name, module in self.auxiliary.items():
            module.load_state_dict(tensors_under(f"{OBJECTIVE}.{name}", state.tensors))
        restore_moments(self.optimizer, tensors_under("optimizer", state.tensors))
        random_states = tensors_under("random", state.tensors)
        torch.set_rng_state(random_states["torch"])
        self.generator.set_state(random_states["data"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(random_states["cuda"], self.device)
        self.snapshots = tensors_under(SNAPSHOT, state.tensors)
        self.step = state.epoch * self.steps_per_epoch
        self.schedule.last_epoch = state.epoch
        decay = self.recipe.decay_by if state.epoch >= self.milestone else 1
        self.optimizer.param_groups[0]["lr"] = self.recipe.learning_rate * decay


def weighted(batch: TrainingBatch, part: BatchPart) -> TrainingBatch:
    return replace(batch, image_weight=part.image_weight, pair_weight=part.pair_weight)
