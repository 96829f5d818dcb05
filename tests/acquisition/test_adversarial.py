"""The adversarial autoencoder against its formulas, and its strategies on pools with a known answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence as torch_kl_divergence
from torch.nn import functional

from codline.acquisition.adversarial import (
    AdversarialBatch,
    AdversarialSettings,
    AdversarialTrainer,
    Autoencoder,
    ImageGroup,
    kl_divergence,
    shuffled_batches,
)
from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import TrainingError
from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import AdversarialLearner
from codline.strategies.sraal import Sraal, online_uncertainty
from codline.strategies.ta_vaal import TaVaal
from codline.strategies.vaal import Vaal
from tests.pools import make_pool, outputs_from_probs, select_ids

SETTINGS = AdversarialSettings(steps=3, batch_size=4, latent=4, width=2, beta=0.5, adversary=2.0, learning_rate=1e-3)
LABELED, UNLABELED = ImageGroup(np.arange(6), np.ones(6)), ImageGroup(np.arange(6, 20), np.zeros(14))
# With few images, the regularizing losses need smaller weights than in the paper.
SMALL: dict[str, Any] = {
    "steps": 60,
    "batch_size": 16,
    "latent": 4,
    "width": 4,
    "learning_rate": 5e-3,
    "beta": 0.01,
    "adversary": 0.05,
}


def make_context() -> LearnerContext:
    """Images with odd ids are bright, the others dark."""
    bright = (torch.arange(120) % 2 * 2.0 - 1)[:, None, None, None]
    images = bright + 0.2 * torch.randn(120, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return LearnerContext(lambda ids: images[torch.from_numpy(ids)], torch.device("cpu"), 0, lambda *_: None)


def make_trainer(**changes: Any) -> AdversarialTrainer:
    return AdversarialTrainer(replace(SETTINGS, **changes), LABELED, UNLABELED, make_context())


def encode(trainer: AdversarialTrainer, batch: AdversarialBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    means, log_variances = trainer.networks.autoencoder(batch.images)
    noise = torch.randn(means.shape, generator=trainer.generator)
    return means, log_variances, means + noise * log_variances.exp().sqrt()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (3, 29, 50), (2, 4, 4)], ids=str)
def test_autoencoder_returns_images_of_their_own_size(shape: tuple[int, ...]) -> None:
    network = Autoencoder(shape, width=2, latent=5, decoder_inputs=5)
    means, log_variances = network(torch.randn(3, *shape))
    assert means.shape == log_variances.shape == (3, 5)
    assert network.decoder(means).shape == (3, *shape)


def test_autoencoder_with_the_paper_s_sizes_is_the_paper_s_network() -> None:
    network = Autoencoder((3, 32, 32), width=128, latent=32, decoder_inputs=32)
    encoder = [tuple(each.weight.shape[:2]) for each in network.encoder if isinstance(each, torch.nn.Conv2d)]
    decoder = [tuple(each.weight.shape[:2]) for each in network.decoder if isinstance(each, torch.nn.ConvTranspose2d)]
    assert encoder == [(128, 3), (256, 128), (512, 256), (1024, 512)]
    assert decoder == [(1024, 512), (512, 256), (256, 128), (128, 3)]
    assert (network.mean.in_features, network.decoder[0].out_features) == (4096, 1024 * 4 * 4)


def test_kl_divergence_is_that_of_normal_distributions() -> None:
    means, log_variances = torch.randn(3, 4), torch.randn(3, 4)
    exact = torch_kl_divergence(Normal(means, (log_variances / 2).exp()), Normal(0.0, 1.0)).sum(1).mean()
    assert float(kl_divergence(means, log_variances)) == pytest.approx(float(exact), rel=1e-5)


def test_shuffled_batches_repeat_no_row_before_all_others_came() -> None:
    batches = shuffled_batches(6, 4, torch.Generator().manual_seed(0))
    rows = np.concatenate([next(batches) for _ in range(3)])
    assert sorted(rows[:6]) == sorted(rows[6:]) == list(range(6))


def test_shuffled_batches_may_be_larger_than_the_number_of_rows() -> None:
    assert np.bincount(next(shuffled_batches(2, 5, torch.Generator().manual_seed(0)))).min() == 2


def test_encoder_loss_is_reconstruction_divergence_and_adversarial_loss() -> None:
    trainer = make_trainer()
    batch, state = UNLABELED.batch(np.arange(4), trainer.context), trainer.generator.get_state()
    loss = trainer.encoder_loss(batch)
    trainer.generator.set_state(state)
    means, log_variances, codes = encode(trainer, batch)
    reconstruction = (trainer.networks.autoencoder.decoder(codes) - batch.images).square().mean()
    divergence = 0.5 * kl_divergence(means, log_variances)
    adversarial = -2 * trainer.networks.discriminator(means).sigmoid().log().mean()
    assert loss.item() == pytest.approx((reconstruction + divergence + adversarial).item(), rel=1e-4)


def test_discriminator_loss_has_gradients_for_the_discriminator_only() -> None:
    trainer = make_trainer()
    networks, batches = trainer.networks, [each.batch(np.arange(4), trainer.context) for each in (LABELED, UNLABELED)]
    loss = trainer.discriminator_loss(batches)
    loss.backward()  # type: ignore[no-untyped-call]
    labeled, unlabeled = (
        networks.discriminate(networks.autoencoder(each.images)[0], each).sigmoid() for each in batches
    )
    assert loss.item() == pytest.approx((-labeled.log().mean() - (1 - unlabeled).log().mean()).item(), rel=1e-4)
    assert all(parameter.grad is None for parameter in networks.autoencoder.parameters())
    assert all(parameter.grad is not None for parameter in networks.discriminator.parameters())


def test_with_classes_half_of_the_code_is_classified_and_the_other_half_decoded() -> None:
    labeled = replace(LABELED, labels=np.arange(6) % 3)
    settings = replace(SETTINGS, classification=5.0)
    trainer = AdversarialTrainer(settings, labeled, UNLABELED, make_context(), classes=3)
    assert trainer.networks.autoencoder.decoder[0].in_features == 2
    batch, state, losses = labeled.batch(np.arange(4), trainer.context), trainer.generator.get_state(), []
    for each in (batch, replace(batch, labels=None)):
        trainer.generator.set_state(state)
        losses.append(trainer.encoder_loss(each))
    trainer.generator.set_state(state)
    _, _, codes = encode(trainer, batch)
    assert trainer.networks.classifier is not None
    assert batch.labels is not None
    classification = functional.cross_entropy(trainer.networks.classifier(codes[:, 2:]), batch.labels)
    assert (losses[0] - losses[1]).item() == pytest.approx(5 * classification.item(), rel=1e-3)


def test_ranks_are_inputs_of_decoder_and_discriminator() -> None:
    labeled, pool = (replace(group, ranks=group.ids / 10) for group in (LABELED, UNLABELED))
    trainer = AdversarialTrainer(SETTINGS, labeled, pool, make_context())
    assert trainer.networks.autoencoder.decoder[0].in_features == trainer.networks.discriminator[0].in_features == 5
    assert pool.batch(np.array([3]), trainer.context).ranks.tolist() == [[pytest.approx(0.9)]]


def test_fit_predict_repeats_to_the_bit_with_the_same_seed() -> None:
    assert np.array_equal(make_trainer().fit_predict(), make_trainer().fit_predict())


def test_pool_logits_do_not_depend_on_the_other_images_of_a_batch() -> None:
    trainer = make_trainer(batch_size=5)
    logits = trainer.fit_predict()
    trainer.groups = (LABELED, ImageGroup(UNLABELED.ids[:7], np.zeros(7)))
    assert trainer.pool_logits() == pytest.approx(logits[:7], abs=1e-5)


def test_fit_predict_reports_divergence() -> None:
    refusal = r"own training diverged; lower score\.strategy\.learning_rate \(now 1e\+30\)"
    with pytest.raises(TrainingError, match=refusal):
        make_trainer(learning_rate=1e30).fit_predict()


def make_half_bright_pool() -> PoolFeatures:
    """Labeled images are dark; of the unlabeled ones, those with odd ids are bright."""
    pool = make_pool(images=40, classes=3)
    labeled = replace(pool.labeled, ids=np.arange(100, 112, 2))
    uniform = outputs_from_probs(np.full((40, 3), 1 / 3))
    return replace(pool, ids=np.arange(40), outputs=uniform, labeled=labeled, context=make_context())


@pytest.mark.slow
def test_vaal_selects_images_unlike_the_labeled_ones() -> None:
    assert all(i % 2 == 1 for i in select_ids(Vaal(**SMALL), make_half_bright_pool(), 20))


def test_ta_vaal_separates_images_by_their_predicted_losses() -> None:
    """All images are equal; odd ids have a larger predicted loss than all labeled images."""
    pool = make_half_bright_pool()
    pool = replace(
        pool,
        context=replace(pool.context, images=lambda ids: torch.zeros(len(ids), 1, 8, 8)),
        labeled=replace(pool.labeled, predicted_losses=np.zeros(6, np.float32)),
        predicted_losses=(3.0 * (pool.ids % 2)).astype(np.float32),
    )
    assert all(i % 2 == 1 for i in select_ids(TaVaal(**SMALL), pool, 20))


@pytest.mark.slow
def test_sraal_selects_images_that_the_model_is_uncertain_of() -> None:
    """The model is certain of the bright images, although no labeled image is bright."""
    pool = make_half_bright_pool()
    certain = np.where((pool.ids % 2 == 1)[:, None], np.eye(3)[0], np.full(3, 1 / 3))
    query = select_ids(Sraal(**SMALL), replace(pool, outputs=outputs_from_probs(certain.clip(1e-30))), 20)
    assert all(i % 2 == 0 for i in query)


@pytest.mark.parametrize("strategy", [Vaal(**SMALL | {"steps": 2}), Sraal(**SMALL | {"steps": 2})])
def test_adversarial_strategies_report_progress_after_every_step(strategy: AdversarialLearner) -> None:
    steps: list[tuple[int, int]] = []
    pool = make_half_bright_pool()
    context = replace(pool.context, advance=lambda *step: steps.append(step))
    select_ids(strategy, replace(pool, context=context), 1)
    assert steps == [(1, 2), (2, 2)]


def test_online_uncertainty_is_one_for_uniform_probabilities_and_zero_for_certain_ones() -> None:
    probs = np.array([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0], [0.6, 0.2, 0.2]])
    assert online_uncertainty(probs) == pytest.approx([0, 1, 1 - 0.5 / 4, 1 - 0.6])
    assert online_uncertainty(np.ones((2, 1))) == pytest.approx([1, 1])
