"""The networks that a strategy needs, loaded from their files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from codline.acquisition.candidates import Candidates
from codline.data.dataset_info import DatasetInfo
from codline.data.dense_outputs import subsample_pixels
from codline.data.random_streams import derive_seed
from codline.learning import auxiliary_networks, model_file
from codline.models.networks.loss_predictor import LossPredictor
from codline.models.networks.network import Network
from codline.strategies.base import ReferenceName, Strategy


@dataclass(frozen=True)
class ScoringNetworks:
    current: Network
    references: dict[ReferenceName, Network]  # without "previous" if its stored outputs are used
    loss_predictor: LossPredictor | None
    first_cycle: bool
    image_shape: tuple[int, ...]
    dropout: float = 0  # rate of the current network's own dropout layer

    @torch.inference_mode()
    def output_sizes(self, subsample: bool = False) -> tuple[int, int]:
        """Channels of the features, and numbers of the outputs, of one image."""
        network = self.current.eval()
        features = network.body(torch.zeros(1, *self.image_shape, device=next(network.parameters()).device))
        logits = network.head(features)
        return features.shape[1], (subsample_pixels(logits) if subsample and logits.ndim > 2 else logits).numel()

    def dropout_factors(self, passes: int, rate: float | None, generator: torch.Generator) -> Tensor:
        """(passes, channels) factors for the features: 0, or 1 / (1 - rate), which preserves their mean.

        They are the same for all images, so that scores do not depend on batches. Without a rate, they are what the
        network's own dropout layer would multiply features by.
        """
        rate = self.dropout if rate is None else rate
        channels, _ = self.output_sizes()
        is_kept = torch.rand(passes, channels, generator=generator) >= rate
        return is_kept / (1 - rate)


def load_networks(
    strategy: Strategy,
    info: DatasetInfo,
    device: torch.device,
    *,
    model: Path,
    previous_model: Path,
    auxiliary: Path,
    recompute_previous: bool,
    seed: int,
    candidates: Candidates | None = None,
) -> ScoringNetworks:
    classes, shape = len(info.classes), info.shape
    current, card = model_file.load_network(model, classes=classes, shape=shape)
    first_cycle = model_file.read_card(previous_model, classes=classes, shape=shape).cycle == "init"
    strategy.check_dropout(card.spec.dropout)
    tensors = auxiliary_networks.read_auxiliary(auxiliary)
    untrained = partial(card.spec.seeded_network, classes, shape, derive_seed(seed, "independent"))
    loaders: dict[ReferenceName, Callable[[], Network]] = {
        "previous": lambda: model_file.load_network(previous_model, classes=classes, shape=shape)[0],
        "independent": untrained,
    }

    def load(name: ReferenceName) -> Network:
        if name in loaders:
            return loaders[name]().to(device)
        return auxiliary_networks.load_auxiliary_network(untrained(), name, tensors).to(device)

    names = strategy.reference_models(first_cycle) | (candidates.reference_models() if candidates else set())
    names -= set() if recompute_previous else {"previous"}
    predictor = auxiliary_networks.load_loss_predictor(tensors).to(device) if strategy.uses_predicted_losses else None
    return ScoringNetworks(
        current=current.to(device),
        references={name: load(name) for name in sorted(names, key=str)},
        loss_predictor=predictor,
        first_cycle=first_cycle,
        image_shape=shape,
        dropout=card.spec.dropout,
    )
