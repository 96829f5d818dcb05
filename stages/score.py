"""score: this cycle's model and the previous outputs -> outputs and a score for every unlabeled image."""

from collections.abc import Generator
from contextlib import closing
from typing import Literal, Self

from pydantic import PositiveInt, ValidationInfo, field_validator, model_validator

from codline.acquisition.candidates import Candidates
from codline.core.errors import PoolUsedUp
from codline.core.params import Amount, Compute, Section
from codline.data import output_store, tables
from codline.data.dataset_info import read_dataset_info
from codline.data.labels import check_labels, unlabeled_ids
from codline.data.random_streams import generator
from codline.data.score_table import write_scores
from codline.learning.augmentation import Augmentation
from codline.runtime.progress import progress_bar
from codline.strategies import AnyStrategy
from codline.strategies.base import BatchStrategy
from stages.runner import In, Out, run


class Params(Section):
    strategy: AnyStrategy
    truth: Literal["pool", "oracle"]  # table in data/ with the labels that strategies may use: the pool has none
    batch_size: PositiveInt
    subset: Amount | None = None  # score a random subset of the unlabeled images only
    candidates: Candidates | None = None  # that a strategy which selects whole queries chooses among; default: all
    previous: Literal["stored", "recomputed"] = "stored"  # outputs of the previous cycle
    augment: Augmentation | None = None  # a random view of each image, the same for all models

    @field_validator("truth")
    @classmethod
    def check_truth(cls, truth: str, info: ValidationInfo) -> str:
        if (strategy := info.data.get("strategy")) is not None:
            strategy.check_truth(truth)
        return truth

    @field_validator("candidates")
    @classmethod
    def check_candidates(cls, candidates: Candidates | None, info: ValidationInfo) -> Candidates | None:
        strategy = info.data.get("strategy")
        if candidates is not None and strategy is not None and not isinstance(strategy, BatchStrategy):
            raise ValueError(f"nothing: {strategy.name} ranks all images and holds none of them")
        return candidates

    @model_validator(mode="after")
    def check_view(self) -> Self:
        if self.augment is not None and self.previous == "stored":
            raise ValueError("previous: recomputed with augment: both models must see the same view")
        return self


def score(
    params: Params, *, seed: int, compute: Compute, budget: int | float, cycle: str,
    images: In, dataset: In, pool: In, labeled: In, model: In, auxiliary: In,
    previous_outputs: In, previous_model: In, truth: In, outputs: Out, scores: Out,
) -> None:  # fmt: skip
    from codline.learning.compute import configure
    from codline.learning.image_reader import ImageReader
    from codline.learning.inference import BatchOutputs
    from codline.scoring.context import ScoringContext, draw_subset, load_true_labels
    from codline.scoring.networks import load_networks
    from codline.scoring.scorers import make_scorer

    ids = unlabeled_ids(pool, labeled)
    if not len(ids):
        found = "every image of the pool has a label, so there is nothing left to select"
        raise PoolUsedUp(f"{found}; expected {cycle} as the last cycle in params.yaml (`codline run` makes it so)")
    device, info, strategy = configure(compute), read_dataset_info(dataset), params.strategy
    strategy.check_installed()
    strategy.check_task(info.task)
    recompute = params.previous == "recomputed"
    stored = None if recompute else output_store.open_output_store(previous_outputs, info.output_shape)
    reader = ImageReader(images, info, compute, params.batch_size)
    files = {"model": model, "previous_model": previous_model, "auxiliary": auxiliary}
    networks = load_networks(
        strategy, info, device, **files, recompute_previous=recompute, seed=seed, candidates=params.candidates
    )
    scored = draw_subset(ids, params.subset, generator(seed, "subset", cycle))
    check_labels(labeled, tables.LABELED, classes := len(info.classes))
    true_labels = load_true_labels(truth, scored, not recompute, classes) if strategy.uses_true_labels else None
    context = ScoringContext(networks, reader, scored, stored, true_labels, seed=seed, cycle=cycle)
    scorer = make_scorer(strategy, context, budget, pool=pool, labeled=labeled, candidates=params.candidates)
    passed = scored if recompute else ids
    workers = reader.workers(len(passed), is_augmented=params.augment is not None)

    def write_outputs() -> Generator[BatchOutputs]:
        """The batches of the pass, whose logits are written as they come."""
        with (
            progress_bar(f"score@{cycle}", "images", len(scored), workers) as advance,
            output_store.output_writer(outputs, info.output_shape, cycle) as write,
            closing(scorer.forward_batches(passed, params.augment)) as batches,
        ):
            for done, batch in enumerate(batches, 1):
                write(batch.ids, batch.logits[0])
                yield batch
                advance(min(done * params.batch_size, len(scored)))

    with closing(write_outputs()) as batches:
        write_scores(scorer.scores(batches), scores, scorer.ranks_pool)


if __name__ == "__main__":
    run(score)
