"""What the score stage compares: which images, seen how, by which networks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import CodlineError
from codline.core.params import amount
from codline.data import masks, output_store, tables
from codline.data.array_store import Arrays
from codline.data.labels import looked_up
from codline.learning import auxiliary_networks, inference
from codline.learning.augmentation import Augment
from codline.learning.inference import Normalize, Pass, Take, View, Wanted
from codline.models.base import Network
from codline.objectives.loss_predictor import LossPredictor
from codline.runtime import state_directory
from codline.strategies.base import Chooser, Known, Other, Outputs, Pool, Strategy, Whole

Truth = Callable[[np.ndarray], np.ndarray]  # ids -> the answers


@dataclass(frozen=True)
class Sight:
    """How images are seen."""

    take: Take
    normalize: Normalize
    batch_size: int

    def passes(
        self, networks: Sequence[Network], ids: np.ndarray, wanted: Wanted, view: View | None = None
    ) -> Iterator[Pass]:
        return inference.passes(networks, self.take, ids, self.normalize, self.batch_size, wanted, view)

    def tensors(self, ids: np.ndarray) -> Tensor:
        return self.normalize(torch.from_numpy(self.take(ids)).to(self.normalize.device))


@dataclass(frozen=True)
class Beside:
    """What a strategy is told, besides this cycle's outputs."""

    chosen: np.ndarray  # ids that can be asked for
    others: tuple[Other, ...]  # the networks whose logits come with this cycle's, in this order
    kept: Arrays | None  # the last cycle's outputs, unless they are among the others
    first_cycle: bool
    rng: np.random.Generator
    predictor: LossPredictor | None = None
    truth: Truth | None = None


class Scorer:
    """A strategy that scores, batch by batch."""

    def __init__(self, strategy: Strategy, beside: Beside) -> None:
        self.strategy, self.beside = strategy, beside
        self.found, self.seen = np.empty(len(beside.chosen)), 0

    def see(self, one: Pass) -> None:
        if count := int(self.rows(one).sum()):
            self.found[self.seen : self.seen + count] = self.strategy.scores(self.pool(one), self.beside.rng)
            self.seen += count

    def pool(self, one: Pass) -> Pool:
        rows = self.rows(one)
        ours, *theirs = (said(logits[rows]) for logits in one.logits)
        others = dict(zip(self.beside.others, theirs, strict=True))
        if self.beside.kept is not None and "previous" in self.strategy.needs(self.beside.first_cycle):
            others["previous"] = said(self.beside.kept.take(one.ids[rows]))
        samples = (output_store.softmax(logits[rows]) for logits in one.samples)
        predicted = None if one.predicted is None else one.predicted[rows]
        truth = None if self.beside.truth is None else self.beside.truth(one.ids[rows])
        return Pool(one.ids[rows], ours, others, self.beside.first_cycle, samples, predicted, truth)

    def rows(self, one: Pass) -> np.ndarray:
        places = np.searchsorted(self.beside.chosen, one.ids)
        found: np.ndarray = self.beside.chosen[np.minimum(places, len(self.beside.chosen) - 1)] == one.ids
        return found

    def scores(self) -> np.ndarray:
        """One for each that can be asked for."""
        return self.found


class Gatherer(Scorer):
    """A strategy that has to see the whole pool before it chooses."""

    def __init__(
        self,
        strategy: Chooser,
        beside: Beside,
        budget: int,
        labeled: np.ndarray,
        labels: np.ndarray,
        sight: Sight,
        network: Network,
        bench: LearnerContext,
    ) -> None:
        super().__init__(strategy, beside)
        self.chooser, self.budget, self.labeled, self.labels = strategy, budget, labeled, labels
        self.sight, self.network, self.bench = sight, network, bench
        self.pools: list[tuple[Pool, np.ndarray]] = []

    def see(self, one: Pass) -> None:
        assert one.features is not None
        self.pools.append((self.pool(one), one.features[self.rows(one)]))

    def scores(self) -> np.ndarray:
        """The query, most wanted first, has budget, budget - 1, ..., 1; all others have 0."""
        ids = chosen(self.chooser.choose(self.whole(), self.budget, self.beside.rng), self.beside.chosen, self.budget)
        scores = np.zeros(len(self.beside.chosen))
        scores[np.searchsorted(self.beside.chosen, ids)] = np.arange(self.budget, 0, -1)
        return scores

    def whole(self) -> Whole:
        parts = [pool for pool, _ in self.pools]
        others = {name: joined([part.others[name] for part in parts]) for name in parts[0].others}
        features = np.concatenate([features for _, features in self.pools])
        ids, ours = np.concatenate([part.ids for part in parts]), joined([part.outputs for part in parts])
        predicted = stacked([part.predicted for part in parts])
        return Whole(ids, ours, features, self.known(), self.bench, others, self.beside.first_cycle, predicted)

    def known(self) -> Known:
        seen = [
            *self.sight.passes([self.network], self.labeled, Wanted(features=True, predictor=self.beside.predictor))
        ]
        features = np.concatenate([one.features for one in seen if one.features is not None])
        return Known(self.labeled, self.labels, features, stacked([one.predicted for one in seen]))


def truth(strategy: Strategy, path: Path, ids: np.ndarray, thin: bool) -> Truth | None:
    """The answers for these ids, of the pixels that the outputs have, if the strategy is the control that is told them. No other has the file opened."""
    if not strategy.truth:
        return None
    cells = looked_up(ids, path, tables.ORACLE)
    targets = masks.kept_targets if thin else masks.targets
    return lambda some: targets(cells[np.searchsorted(ids, some)])


def bench(sight: Sight, seed: int, name: str) -> LearnerContext:
    def advance(done: int, total: int) -> None:
        if done == total or done % max(1, total // 100) == 0:
            state_directory.note("progress", name, {"unit": "steps", "done": done, "total": total})

    return LearnerContext(sight.tensors, sight.normalize.device, seed, advance)


def stacked(parts: list[np.ndarray | None]) -> np.ndarray | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


def joined(parts: list[Outputs]) -> Outputs:
    return Outputs(
        np.concatenate([part.logits_NC for part in parts]), np.concatenate([part.probs_NC for part in parts])
    )


def chosen(ids: np.ndarray, pool: np.ndarray, budget: int) -> np.ndarray:
    """The ids, if they are a query."""
    if len(ids) != budget or len(np.unique(ids)) != budget or not np.isin(ids, pool).all():
        raise CodlineError(
            f"the strategy chose {len(np.unique(ids))} images, expected {budget} different ones of the unlabelled pool"
        )
    return ids


def dropouts(passes: int, share: float, network: Network, shape: tuple[int, ...], seed: int) -> Tensor | None:
    """What features are multiplied with in each stochastic pass: zero, or what keeps their mean. The same for every image, so that batches do not matter."""
    if not passes:
        return None
    device = next(network.parameters()).device
    channels = network.eval().body(torch.zeros(1, *shape, device=device)).shape[1]
    kept = torch.rand(passes, channels, generator=torch.Generator().manual_seed(seed)) >= share
    return kept / (1 - share)


def networks(
    needs: Iterable[Other], beside: dict[str, Tensor], previous: Callable[[], Network], untrained: Callable[[], Network]
) -> dict[Other, Network]:
    """The networks that a strategy compares this cycle's with. `beside` is what training kept, `untrained` makes an independent network."""
    known: dict[Other, Callable[[], Network]] = {"previous": previous, "independent": untrained}
    return {
        name: known[name]() if name in known else auxiliary_networks.filled(untrained(), name, beside)
        for name in sorted(needs, key=str)
    }


def subset(ids: np.ndarray, size: float | None, rng: np.random.Generator) -> np.ndarray:
    """So many of the ids, or such a share of them, drawn at random; all if there is no size."""
    return ids if size is None else np.sort(rng.choice(ids, min(amount(size, len(ids)), len(ids)), replace=False))


def view(augment: Augment | None, seed: int) -> View | None:
    generator = torch.Generator().manual_seed(seed)
    return None if augment is None else lambda images: augment(images, generator)


def said(logits_nC: np.ndarray) -> Outputs:
    return Outputs(logits_nC, output_store.softmax(logits_nC))
