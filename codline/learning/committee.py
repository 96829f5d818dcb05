"""Committee: networks trained like the model and independently of it, for query by committee."""

import copy
from collections.abc import Callable
from functools import partial

from torch import Tensor

from codline.data.random_streams import derive_seed
from codline.learning.auxiliary_networks import MEMBER, OBJECTIVE, objective_states
from codline.learning.checkpoints import Checkpoint
from codline.learning.fit import TrainingData, TrainingState
from codline.learning.model_file import ModelCard, tensors_under
from codline.learning.recipe import Recipe
from codline.learning.training_processes import Fit
from codline.objectives.base import TrainingContext


def train_committee(
    fit: Fit,
    recipe: Recipe,
    data: TrainingData,
    card: ModelCard,
    previous_auxiliary: dict[str, Tensor],
    checkpoint: Checkpoint,
    *,
    seed: int,
    cycle: str,
    advance: Callable[[int], None],
) -> dict[str, Tensor]:
    """Train all members, and return their tensors for auxiliary.safetensors. Each takes as long as the model.

    A member has the model's recipe, objectives included, on the same labels, but initial weights, order of batches and
    augmentation of its own. After a kill, members that are complete are read from their checkpoints.
    """

    def train_member(number: int) -> dict[str, Tensor]:
        name, own_checkpoint = f"{MEMBER}.{number}", checkpoint.of_member(number)
        before, previous_network = tensors_under(name, previous_auxiliary), None
        network = card.spec.initial_network(card.classes, card.shape, derive_seed(seed, "init", name))
        if before:
            previous_network = copy.deepcopy(network)
            previous_network.load_state_dict(tensors_under("network", before))
            network = copy.deepcopy(previous_network) if recipe.start_from == "previous" else network
        independent_seed = derive_seed(seed, "independent", name)
        context = TrainingContext(
            image_shape=card.shape,
            previous_network=previous_network,
            make_independent=partial(card.spec.seeded_network, card.classes, card.shape, independent_seed),
            previous_auxiliary=objective_states(before),
        )

        def on_epoch(state: TrainingState) -> None:
            own_checkpoint.write_if_due(state, recipe.epochs)
            advance(number * recipe.epochs + state.epoch)

        final = fit(
            network,
            data,
            recipe.model_copy(update={"snapshots": []}),
            context,
            seed=derive_seed(seed, "training", cycle, name),
            resume=own_checkpoint.read(),
            on_epoch=on_epoch,
        )
        kept = {key: value for key, value in final.tensors.items() if key.partition(".")[0] in ("network", OBJECTIVE)}
        return {f"{name}.{key}": value for key, value in kept.items()}

    members = [train_member(number) for number in range(1, recipe.committee + 1)]
    return {key: value for member in members for key, value in member.items()}
