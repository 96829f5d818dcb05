"""Scorers: run a strategy on the outputs of one batch after the other, and return one score per candidate."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np

from codline.core.errors import CodlineError
from codline.data import tables
from codline.data.output_store import softmax
from codline.data.splits import resolve_amount
from codline.learning.augmentation import Augmentation
from codline.learning.inference import BatchOutputs, RequestedOutputs
from codline.scoring.context import ScoringContext
from codline.strategies.base import BatchStrategy, LabeledFeatures, Outputs, PoolChunk, PoolFeatures, Strategy


class Scorer:
    """Scores each batch as it arrives."""

    ranks_pool = True

    def __init__(self, strategy: Strategy, context: ScoringContext) -> None:
        self.strategy, self.context, self.candidate_ids = strategy, context, context.candidate_ids
        self.first_cycle, self.rng = context.networks.first_cycle, context.generator("selection")
        self.scored = [np.empty(0)]

    def forward_batches(self, ids: np.ndarray, augment: Augmentation | None) -> Generator[BatchOutputs]:
        """Run this cycle's network and the reference networks on the images, or on random views of them."""
        networks, generator = self.context.networks, self.context.torch_generator("view")
        return self.context.reader.forward_batches(
            [networks.current, *networks.references.values()],
            ids,
            self.requested_outputs(),
            transform=None if augment is None else lambda images: augment(images, generator),
        )

    def requested_outputs(self) -> RequestedOutputs:
        """What the strategy needs besides logits."""
        networks, (passes, rate) = self.context.networks, self.strategy.dropout_passes()
        generator = self.context.torch_generator("dropout")
        return RequestedOutputs(
            subsample=self.context.stored_outputs is not None,  # dense outputs are stored subsampled
            features=isinstance(self.strategy, BatchStrategy),
            dropout_factors=networks.dropout_factors(passes, rate, generator) if passes else None,
            loss_predictor=networks.loss_predictor,
        )

    def add(self, batch: BatchOutputs) -> None:
        """Batches come in ascending id order, and may include images that are not candidates."""
        rows = self.is_candidate(batch.ids)
        if rows.any():
            self.scored.append(self.strategy.scores(self.chunk(batch, rows), self.rng))

    def is_candidate(self, ids: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(self.candidate_ids, ids), len(self.candidate_ids) - 1)
        is_candidate: np.ndarray = self.candidate_ids[places] == ids
        return is_candidate

    def chunk(self, batch: BatchOutputs, rows: np.ndarray) -> PoolChunk:
        context, ids = self.context, batch.ids[rows]
        current, *others = (outputs_from_logits(logits[rows]) for logits in batch.logits)
        references = dict(zip(context.networks.references, others, strict=True))
        if context.stored_outputs is not None and "previous" in self.strategy.reference_models(self.first_cycle):
            references["previous"] = outputs_from_logits(context.stored_outputs.take(ids))
        return PoolChunk(
            ids,
            current,
            references,
            first_cycle=self.first_cycle,
            dropout_probs=(softmax(logits[rows]) for logits in batch.dropout_logits),
            predicted_losses=None if batch.predicted_losses is None else batch.predicted_losses[rows],
            true_labels=None if context.true_labels is None else context.true_labels(ids),
        )

    def scores(self) -> np.ndarray:
        """One score per candidate, in ascending id order."""
        return np.concatenate(self.scored)


class BatchSelectionScorer(Scorer):
    """Collects the whole pool, then scores the selected query budget, budget - 1, ..., 1 and all other images 0."""

    ranks_pool = False

    def __init__(self, strategy: BatchStrategy, context: ScoringContext, budget: int, labeled: Path) -> None:
        super().__init__(strategy, context)
        self.batch_strategy, self.budget, self.labeled = strategy, budget, labeled
        self.chunks: list[PoolChunk] = []
        self.features: list[np.ndarray] = []

    def add(self, batch: BatchOutputs) -> None:
        assert batch.features is not None
        rows = self.is_candidate(batch.ids)
        # The generator of dropout passes would keep the tensors of all batches in memory.
        self.chunks.append(replace(self.chunk(batch, rows), dropout_probs=iter(())))
        self.features.append(batch.features[rows])

    def scores(self) -> np.ndarray:
        query = self.batch_strategy.select_query(self.pool_features(), self.budget, self.rng)
        self.check_query(query)
        scores = np.zeros(len(self.candidate_ids))
        scores[np.searchsorted(self.candidate_ids, query)] = np.arange(self.budget, 0, -1)
        return scores

    def check_query(self, query: np.ndarray) -> None:
        distinct = len(np.unique(query))
        if len(query) != self.budget or distinct != self.budget or not np.isin(query, self.candidate_ids).all():
            raise CodlineError(
                f"the strategy chose {distinct} images, expected {self.budget} different ones of the unlabelled pool"
            )

    def pool_features(self) -> PoolFeatures:
        chunks = self.chunks
        return PoolFeatures(
            ids=np.concatenate([chunk.ids for chunk in chunks]),
            outputs=concatenate_outputs([chunk.outputs for chunk in chunks]),
            features_ND=np.concatenate(self.features),
            labeled=self.labeled_features(),
            context=self.context.learner_context(),
            references={
                name: concatenate_outputs([chunk.references[name] for chunk in chunks]) for name in chunks[0].references
            },
            first_cycle=self.first_cycle,
            predicted_losses=concatenate_optional([chunk.predicted_losses for chunk in chunks]),
        )

    def labeled_features(self) -> LabeledFeatures:
        table, networks = tables.read_table(self.labeled, tables.LABELED), self.context.networks
        ids, labels = (table[name].to_numpy() for name in ("id", "label"))
        requested = RequestedOutputs(features=True, loss_predictor=networks.loss_predictor)
        batches = [*self.context.reader.forward_batches([networks.current], ids, requested)]
        features = np.concatenate([batch.features for batch in batches if batch.features is not None])
        losses = concatenate_optional([batch.predicted_losses for batch in batches])
        return LabeledFeatures(ids, labels, features, losses)


def make_scorer(strategy: Strategy, context: ScoringContext, budget: float, *, pool: Path, labeled: Path) -> Scorer:
    """`budget` is a number of images, or a share of the pool."""
    if not isinstance(strategy, BatchStrategy):
        return Scorer(strategy, context)
    images = resolve_amount(budget, tables.count_rows(pool, tables.POOL))
    return BatchSelectionScorer(strategy, context, min(images, len(context.candidate_ids)), labeled)


def outputs_from_logits(logits_nC: np.ndarray) -> Outputs:
    return Outputs(logits_nC, softmax(logits_nC))


def concatenate_outputs(parts: list[Outputs]) -> Outputs:
    logits, probs = ([getattr(part, name) for part in parts] for name in ("logits_NC", "probs_NC"))
    return Outputs(np.concatenate(logits), np.concatenate(probs))


def concatenate_optional(parts: list[np.ndarray | None]) -> np.ndarray | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
