"""Scorers: run a strategy on the outputs of one batch after the other, and yield one score per image."""

from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from codline.acquisition.candidates import Candidates
from codline.core.errors import CodlineError, UserError
from codline.data import tables
from codline.data.labels import is_among
from codline.data.output_store import softmax
from codline.data.splits import resolve_amount
from codline.learning.augmentation import Augmentation
from codline.learning.inference import BatchOutputs, RequestedOutputs
from codline.scoring.context import ScoringContext
from codline.scoring.memory_estimate import refuse_large_pool
from codline.scoring.top_rows import TopRows
from codline.strategies.base import (
    BatchStrategy,
    LabeledFeatures,
    Outputs,
    PoolChunk,
    PoolFeatures,
    PoolSize,
    ReferenceName,
    Strategy,
)

IdsAndScores = tuple[np.ndarray, np.ndarray]


class Scorer:
    """Scores each batch as it arrives."""

    ranks_pool = True

    def __init__(self, strategy: Strategy, context: ScoringContext) -> None:
        self.strategy, self.context, self.scored_ids = strategy, context, context.scored_ids
        self.first_cycle, self.rng = context.networks.first_cycle, context.generator("selection")
        self.references = strategy.reference_models(self.first_cycle)

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

    def scores(self, batches: Iterable[BatchOutputs]) -> Iterator[IdsAndScores]:
        """Yield ids and their scores. Batches come in ascending id order, and may include images that get no score."""
        for batch in batches:
            rows = is_among(batch.ids, self.scored_ids)
            if rows.any():
                yield batch.ids[rows], self.strategy.scores(self.chunk(batch, rows), self.rng)

    def chunk(self, batch: BatchOutputs, rows: np.ndarray) -> PoolChunk:
        context, ids = self.context, batch.ids[rows]
        current, *others = (outputs_from_logits(logits[rows]) for logits in batch.logits)
        references = dict(zip(context.networks.references, others, strict=True))
        if context.stored_outputs is not None and "previous" in self.references:
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


class BatchSelectionScorer(Scorer):
    """Collects the candidates, then scores the selected query budget, budget - 1, ..., 1 and all other images 0.

    Candidates are all images that are scored, or the best by the rule of `candidates`.
    """

    ranks_pool = False

    def __init__(
        self,
        strategy: BatchStrategy,
        context: ScoringContext,
        budget: int,
        labeled: Path,
        candidates: Candidates | None = None,
        keep: int | None = None,
    ) -> None:
        super().__init__(strategy, context)
        self.batch_strategy, self.budget, self.labeled, self.candidates = strategy, budget, labeled, candidates
        self.declared = self.references
        self.references |= candidates.reference_models() if candidates else set()
        total = len(self.scored_ids)
        self.rows = TopRows(total if keep is None else keep, total)

    def pool_size(self) -> PoolSize:
        """Of the candidates, before the pass."""
        features, outputs = self.context.networks.output_sizes(subsample=self.context.stored_outputs is not None)
        labeled = tables.count_rows(self.labeled, tables.LABELED)
        return PoolSize(self.rows.count, labeled, features, outputs, self.budget)

    def add(self, batch: BatchOutputs) -> None:
        assert batch.features is not None
        rows = is_among(batch.ids, self.scored_ids)
        chunk = self.chunk(batch, rows)
        columns: dict[Hashable, np.ndarray] = {"ids": chunk.ids, "features": batch.features[rows]}
        columns |= output_columns(None, chunk.outputs)
        for name in self.declared:
            columns |= output_columns(name, chunk.references[name])
        if chunk.predicted_losses is not None:
            columns["predicted losses"] = chunk.predicted_losses
        self.rows.add(self.candidate_scores(chunk), columns)

    def candidate_scores(self, chunk: PoolChunk) -> np.ndarray:
        if self.candidates is None:
            return np.zeros(len(chunk.ids))
        previous = chunk.references.get("previous")
        return self.candidates.scores(
            chunk.ids,
            chunk.probs_NC,
            None if previous is None else previous.probs_NC,
            first_cycle=self.first_cycle,
            key=self.context.stream_seed("candidates"),
        )

    def scores(self, batches: Iterable[BatchOutputs]) -> Iterator[IdsAndScores]:
        for batch in batches:
            self.add(batch)
        yield self.scored_ids, self.query_scores()

    def query_scores(self) -> np.ndarray:
        pool = self.pool_features()
        query = self.batch_strategy.select_query(pool, self.budget, self.rng)
        self.check_query(query, pool.ids)
        scores = np.zeros(len(self.scored_ids))
        scores[np.searchsorted(self.scored_ids, query)] = np.arange(self.budget, 0, -1)
        return scores

    def check_query(self, query: np.ndarray, ids: np.ndarray) -> None:
        distinct = len(np.unique(query))
        if len(query) != self.budget or distinct != self.budget or not np.isin(query, ids).all():
            raise CodlineError(
                f"the strategy chose {distinct} images, expected {self.budget} different ones of its candidates"
            )

    def pool_features(self) -> PoolFeatures:
        columns = self.rows.finish()
        return PoolFeatures(
            ids=columns["ids"],
            outputs=outputs_from_columns(None, columns),
            features_ND=columns["features"],
            labeled=self.labeled_features(),
            context=self.context.learner_context(),
            references={name: outputs_from_columns(name, columns) for name in self.declared},
            first_cycle=self.first_cycle,
            predicted_losses=columns.get("predicted losses"),
        )

    def labeled_features(self) -> LabeledFeatures:
        table, networks = tables.read_table(self.labeled, tables.LABELED), self.context.networks
        ids, labels = (table[name].to_numpy() for name in ("id", "label"))
        requested = RequestedOutputs(features=True, loss_predictor=networks.loss_predictor)
        batches = [*self.context.reader.forward_batches([networks.current], ids, requested)]
        features = np.concatenate([batch.features for batch in batches if batch.features is not None])
        losses = concatenate_optional([batch.predicted_losses for batch in batches])
        return LabeledFeatures(ids, labels, features, losses)


def make_scorer(
    strategy: Strategy,
    context: ScoringContext,
    budget: float,
    *,
    pool: Path,
    labeled: Path,
    candidates: Candidates | None = None,
) -> Scorer:
    """`budget` is a number of images, or a share of the pool."""
    if not isinstance(strategy, BatchStrategy):
        return Scorer(strategy, context)
    size = tables.count_rows(pool, tables.POOL)
    images, keep = resolve_amount(budget, size), resolve_amount(candidates.keep, size) if candidates else None
    images = min(images, len(context.scored_ids))
    if keep is not None and keep < images:
        found = f"params.yaml: score.candidates.keep: found {keep} images"
        raise UserError(f"{found}, expected at least those of a query ({images})")
    scorer = BatchSelectionScorer(strategy, context, images, labeled, candidates, keep)
    refuse_large_pool(strategy, scorer.pool_size(), scorer.rows.capacity, models=1 + len(scorer.declared))
    return scorer


def outputs_from_logits(logits_nC: np.ndarray) -> Outputs:
    return Outputs(logits_nC, softmax(logits_nC))


def output_columns(model: ReferenceName | None, outputs: Outputs) -> dict[Hashable, np.ndarray]:
    return {(model, "logits"): outputs.logits_NC, (model, "probs"): outputs.probs_NC}


def outputs_from_columns(model: ReferenceName | None, columns: Mapping[Hashable, np.ndarray]) -> Outputs:
    return Outputs(columns[model, "logits"], columns[model, "probs"])


def concatenate_optional(parts: list[np.ndarray | None]) -> np.ndarray | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
