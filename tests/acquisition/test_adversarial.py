"""Autoencoder and discriminator by hand, and the strategies that use them on pools whose answer is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from codline.acquisition import adversarial
from codline.acquisition.adversarial import Game, Settings, Side
from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import TrainingError
from codline.strategies.base import Whole
from codline.strategies.learner_base import AdversarialLearner
from codline.strategies.sraal import Sraal, uncertainty
from codline.strategies.ta_vaal import TaVaal
from codline.strategies.vaal import Vaal
from tests.contracts.test_every_chooser import quiet, said, whole_of

SETTINGS = Settings(steps=3, batch_size=4, latent=4, width=2, beta=0.5, adversary=2.0, learning_rate=1e-3)
# So little to learn from needs lighter weights than the paper's.
QUICK: dict[str, Any] = {
    "steps": 60,
    "batch_size": 16,
    "latent": 4,
    "width": 4,
    "learning_rate": 5e-3,
    "beta": 0.01,
    "adversary": 0.05,
}


def bench(seed: int = 0) -> LearnerContext:
    """The images with odd ids are bright, the others dark."""
    bright = (torch.arange(120) % 2 * 2.0 - 1)[:, None, None, None]
    images = bright + 0.2 * torch.randn(120, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return LearnerContext(lambda ids: images[torch.from_numpy(ids)], torch.device("cpu"), seed, quiet)


def game(**changes: Any) -> Game:
    return Game(
        replace(SETTINGS, **changes), Side(np.arange(6), np.ones(6)), Side(np.arange(6, 20), np.zeros(14)), bench()
    )


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (3, 29, 50), (2, 4, 4)], ids=str)
def test_images_of_any_size_come_back_in_their_size(shape: tuple[int, ...]) -> None:
    network = adversarial.Autoencoder(shape, width=2, latent=5, told=5)
    means, log_variances = network(torch.randn(3, *shape))
    assert means.shape == log_variances.shape == (3, 5)
    assert network.decoder(means).shape == (3, *shape)


def test_the_paper_s_sizes_make_the_paper_s_network() -> None:
    network = adversarial.Autoencoder((3, 32, 32), width=128, latent=32, told=32)
    convolutions = [each.weight.shape[:2] for each in network.encoder if isinstance(each, torch.nn.Conv2d)]
    assert convolutions == [(128, 3), (256, 128), (512, 256), (1024, 512)]
    assert (network.mean.in_features, network.decoder[0].out_features) == (4096, 1024 * 4 * 4)
    assert [each.weight.shape[:2] for each in network.decoder if isinstance(each, torch.nn.ConvTranspose2d)] == [
        (1024, 512),
        (512, 256),
        (256, 128),
        (128, 3),
    ]


def test_the_divergence_is_that_of_normal_distributions() -> None:
    means, log_variances = torch.randn(3, 4), torch.randn(3, 4)
    exact = kl_divergence(Normal(means, (log_variances / 2).exp()), Normal(0.0, 1.0)).sum(1).mean()
    assert float(adversarial.divergence(means, log_variances)) == pytest.approx(float(exact), rel=1e-5)


def test_every_row_comes_once_before_any_comes_again() -> None:
    batches = adversarial.endless(6, 4, torch.Generator().manual_seed(0))
    seen = np.concatenate([next(batches) for _ in range(3)])
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))


def test_a_batch_may_be_larger_than_all_there_is() -> None:
    assert np.bincount(next(adversarial.endless(2, 5, torch.Generator().manual_seed(0)))).min() == 2


def test_the_encoder_s_loss_is_what_is_forgotten_told_and_given_away() -> None:
    played = game()
    batch = played.sides[1].batch(np.arange(4), played.bench)
    state = played.generator.get_state()
    found = played.told(batch)
    played.generator.set_state(state)
    means, log_variances = played.players.autoencoder(batch.images)
    codes = means + torch.randn(4, 4, generator=played.generator) * log_variances.exp().sqrt()
    forgotten = (played.players.autoencoder.decoder(codes) - batch.images).square().mean()
    told = 0.5 * adversarial.divergence(means, log_variances)
    given_away = -2 * played.players.discriminator(means).sigmoid().log().mean()
    assert found.item() == pytest.approx((forgotten + told + given_away).item(), rel=1e-4)


def test_the_discriminator_s_loss_reaches_the_discriminator_alone() -> None:
    played = game()
    batches = [side.batch(np.arange(4), played.bench) for side in played.sides]
    loss = played.judge_loss(batches)
    loss.backward()  # type: ignore[no-untyped-call]
    verdicts = [
        played.players.verdicts(played.players.autoencoder(batch.images)[0], batch).sigmoid() for batch in batches
    ]
    assert loss.item() == pytest.approx((-verdicts[0].log().mean() - (1 - verdicts[1]).log().mean()).item(), rel=1e-4)
    assert all(parameter.grad is None for parameter in played.players.autoencoder.parameters())
    assert all(parameter.grad is not None for parameter in played.players.discriminator.parameters())


def test_half_of_a_code_tells_the_class_and_the_decoder_hears_the_other_half_alone() -> None:
    known = Side(np.arange(6), np.zeros(6), np.arange(6) % 3)
    played = Game(
        replace(SETTINGS, classification=5.0), known, Side(np.arange(6, 20), np.zeros(14)), bench(), classes=3
    )
    assert played.players.autoencoder.decoder[0].in_features == 2
    batch = known.batch(np.arange(4), played.bench)
    state = played.generator.get_state()
    with_classes = played.told(batch)
    played.generator.set_state(state)
    without = played.told(replace(batch, labels=None))
    played.generator.set_state(state)
    means, log_variances = played.players.autoencoder(batch.images)
    codes = means + torch.randn(4, 4, generator=played.generator) * log_variances.exp().sqrt()
    assert played.players.classifier is not None
    assert batch.labels is not None
    told = functional.cross_entropy(played.players.classifier(codes[:, 2:]), batch.labels)
    assert (with_classes - without).item() == pytest.approx(5 * told.item(), rel=1e-3)


def test_the_same_seed_plays_the_same_game_to_the_bit() -> None:
    assert np.array_equal(game().play(), game().play())


def test_pictures_are_told_apart_in_the_end_as_they_were_seen_not_by_their_neighbours() -> None:
    played = game(batch_size=5)
    together = played.play()
    played.sides = (played.sides[0], Side(played.sides[1].ids[:7], np.zeros(7)))
    assert played.states() == pytest.approx(together[:7], abs=1e-5)


def test_a_training_that_diverges_is_told_in_a_sentence() -> None:
    with pytest.raises(
        TrainingError, match=r"own training diverged; lower score\.strategy\.learning_rate \(now 1e\+30\)"
    ):
        game(learning_rate=1e30).play()


def half_bright() -> Whole:
    """Labelled images are dark; of the unlabelled ones, every other is bright."""
    pool = whole_of(images=40, classes=3)
    known = replace(pool.known, ids=np.arange(100, 112, 2))
    return replace(pool, ids=np.arange(40), outputs=said(np.zeros((40, 3))), known=known, bench=bench())


@pytest.mark.slow
def test_vaal_wants_what_does_not_look_like_the_labelled_images() -> None:
    assert (Vaal(**QUICK).choose(half_bright(), 20, np.random.default_rng(0)) % 2 == 1).all()


def test_ta_vaal_tells_images_apart_by_the_losses_foretold_of_them() -> None:
    """All pictures are the same; of the odd ones a larger loss is foretold than of any labelled one."""
    pool = half_bright()
    same = replace(pool.bench, images=lambda ids: torch.zeros(len(ids), 1, 8, 8))
    known = replace(pool.known, predicted=np.zeros(6, np.float32))
    pool = replace(pool, bench=same, known=known, predicted=(3.0 * (pool.ids % 2)).astype(np.float32))
    assert (TaVaal(**QUICK).choose(pool, 20, np.random.default_rng(0)) % 2 == 1).all()


def test_decoder_and_discriminator_are_told_the_ranks() -> None:
    known, pool = (Side(ids, np.ones(len(ids)), ranks=ids / 10) for ids in (np.arange(6), np.arange(6, 20)))
    played = Game(SETTINGS, known, pool, bench())
    assert played.players.autoencoder.decoder[0].in_features == played.players.discriminator[0].in_features == 5
    batch = pool.batch(np.array([3]), played.bench)
    assert batch.ranks.tolist() == [[pytest.approx(0.9)]]


@pytest.mark.slow
def test_sraal_wants_what_the_model_is_unsure_of() -> None:
    """It is sure of the bright ones, so that those are not asked for, though no labelled image looks like them."""
    pool = half_bright()
    sure = said(np.stack([100.0 * (pool.ids % 2), np.zeros(40), np.zeros(40)], axis=1))
    found = Sraal(**QUICK).choose(replace(pool, outputs=sure), 20, np.random.default_rng(0))
    assert (found % 2 == 0).all()


@pytest.mark.parametrize("strategy", [Vaal(**QUICK | {"steps": 2}), Sraal(**QUICK | {"steps": 2})])
def test_progress_is_told_step_by_step(strategy: AdversarialLearner) -> None:
    steps: list[tuple[int, int]] = []
    pool = half_bright()
    strategy.choose(
        replace(pool, bench=replace(pool.bench, advance=lambda *step: steps.append(step))), 1, np.random.default_rng(0)
    )
    assert steps == [(1, 2), (2, 2)]


def test_the_uncertainty_is_one_of_even_probabilities_and_zero_of_sure_ones() -> None:
    probs = np.array([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0], [0.6, 0.2, 0.2]])
    assert uncertainty(probs) == pytest.approx([0, 1, 1 - 0.5 / 4, 1 - 0.6])
    assert uncertainty(np.ones((2, 1))) == pytest.approx([1, 1])
