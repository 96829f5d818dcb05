"""score: this cycle's model, the last one's outputs -> outputs and a score for every unlabelled image."""

from functools import partial
from typing import Literal, Self

import pyarrow as pa
from pydantic import PositiveInt, ValidationInfo, field_validator, model_validator

from codline.core import random_streams
from codline.core.params import Amount, Compute, Section, amount
from codline.data import dataset_info, image_store, output_store, tables
from codline.data.labels import unlabeled
from codline.learning import auxiliary_networks, inference, model_file
from codline.learning.augmentation import Augment
from codline.learning.compute import configure
from codline.runtime.progress import bar
from codline.scoring import scorers
from codline.strategies import AnyStrategy
from codline.strategies.base import Chooser
from stages.runner import In, Out, run


class Params(Section):
    strategy: AnyStrategy
    truth: Literal[
        "pool", "oracle"
    ]  # of the tables in data/, the one that strategies may look answers up in: the pool has none
    batch_size: PositiveInt
    subset: Amount | None = (
        None  # of the unlabelled images, so many, drawn at random, can be asked for; all if left out
    )
    previous: Literal["kept", "recomputed"] = (
        "kept"  # the last cycle's outputs: from its file (dense: every eighth pixel), or by another pass
    )
    augment: Augment | None = None  # a random view of each image, the same for both models

    @field_validator("truth")
    @classmethod
    def for_the_control_alone(cls, truth: str, others: ValidationInfo) -> str:
        strategy = others.data.get("strategy")
        if strategy is not None and strategy.truth and truth == "pool":
            raise ValueError(f"oracle: {strategy.name} is told the answers, and the pool has none")
        if strategy is not None and not strategy.truth and truth == "oracle":
            raise ValueError(f"pool: {strategy.name} must not see the answers")
        return truth

    @model_validator(mode="after")
    def one_view(self) -> Self:
        if self.augment is not None and self.previous == "kept":
            raise ValueError("previous: recomputed beside augment: both models must see the same view")
        return self


def score(
    params: Params,
    *,
    seed: int,
    compute: Compute,
    budget: int | float,
    cycle: str,
    images: In,
    dataset: In,
    pool: In,
    labeled: In,
    model: In,
    auxiliary: In,
    previous_outputs: In,
    previous_model: In,
    truth: In,
    outputs: Out,
    scores: Out,
) -> None:
    device = configure(compute)
    facts, strategy = dataset_info.opened(dataset), params.strategy
    strategy.installed()
    strategy.suited(facts.task)
    classes, shape = len(facts.classes), facts.shape
    network, card = model_file.load_network(model, classes=classes, shape=shape)
    before = model_file.read_card(previous_model, classes=classes, shape=shape)
    kept = None if params.previous == "recomputed" else output_store.opened(previous_outputs, facts.outputs)
    first_cycle = before.cycle == "init"
    untrained = partial(card.spec.drawn, classes, shape, random_streams.derive(seed, "independent"))
    needs = strategy.needs(first_cycle) - ({"previous"} if kept is not None else set())
    left = auxiliary_networks.read(auxiliary)
    others = scorers.networks(
        needs, left, lambda: model_file.load_network(previous_model, classes=classes, shape=shape)[0], untrained
    )
    predictor = auxiliary_networks.predictor(left).to(device) if strategy.predicted else None
    ids = unlabeled(pool, labeled)
    chosen = scorers.subset(ids, params.subset, random_streams.stream(seed, "subset", cycle))
    sight = scorers.Sight(
        image_store.opened(images).take, inference.Normalize(facts.mean, facts.std, device), params.batch_size
    )
    answers = scorers.truth(strategy, truth, chosen, thin=kept is not None)
    beside = scorers.Beside(
        chosen, tuple(others), kept, first_cycle, random_streams.stream(seed, "selection", cycle), predictor, answers
    )
    if isinstance(strategy, Chooser):
        known = tables.read(labeled, tables.LABELED)
        asked = min(amount(budget, tables.count(pool, tables.POOL)), len(chosen))
        bench = scorers.bench(sight, random_streams.derive(seed, "strategy", cycle), f"score@{cycle}")
        scorer: scorers.Scorer = scorers.Gatherer(
            strategy, beside, asked, known["id"].to_numpy(), known["label"].to_numpy(), sight, network, bench
        )
    else:
        scorer = scorers.Scorer(strategy, beside)
    dropouts = scorers.dropouts(*strategy.stochastic(), network, shape, random_streams.derive(seed, "dropout", cycle))
    wanted = inference.Wanted(
        thin=kept is not None, features=isinstance(strategy, Chooser), dropouts=dropouts, predictor=predictor
    )
    view = scorers.view(params.augment, random_streams.derive(seed, "view", cycle))
    networks = [each.to(device) for each in (network, *others.values())]
    with (
        bar(f"score@{cycle}", "images", len(chosen)) as advance,
        output_store.writing(outputs, facts.outputs, cycle) as keep,
    ):
        for done, one in enumerate(sight.passes(networks, chosen if kept is None else ids, wanted, view), 1):
            keep(one.ids, one.logits[0])
            scorer.see(one)
            advance(min(done * params.batch_size, len(chosen)))
    tables.write(pa.table([chosen, scorer.scores()], schema=tables.SCORES), tables.SCORES, scores)


if __name__ == "__main__":
    run(score)
