"""Variational autoencoder trained against a discriminator of labeled and unlabeled images (VAAL and its successors).

Sinha et al., 2019 (VAAL); Zhang et al., 2020 (SRAAL); Kim et al., 2021 (TA-VAAL).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import TrainingError
from codline.learning.inference import batch_slices
from codline.models.networks.transfer import to_device

DISCRIMINATOR_UNITS = 512  # in each hidden layer


@dataclass(frozen=True)
class AdversarialSettings:
    steps: int
    batch_size: int
    latent: int
    width: int  # channels of the first convolution; each of the next three has twice as many
    beta: float  # weight of the codes' KL divergence
    adversary: float  # weight of the adversarial loss
    learning_rate: float
    decay: float = 1.0  # factor on the learning rate, applied thirty times, evenly spaced
    layers: int = 2  # hidden layers of the discriminator
    encoder_steps: int = 2  # autoencoder steps per discriminator step
    reconstruction: float = 1.0
    classification: float = 0.0


@dataclass(frozen=True)
class AdversarialBatch:
    images: Tensor
    targets: Tensor
    labels: Tensor | None
    ranks: Tensor  # (images, 1), or (images, 0) if there are none


@dataclass(frozen=True)
class ImageGroup:
    """The labeled images, or the unlabeled ones, rows aligned."""

    ids: np.ndarray
    targets: np.ndarray  # of the discriminator, from 0 to 1
    labels: np.ndarray | None = None  # classes, if half of the code is trained to predict them
    ranks: np.ndarray | None = None  # predicted losses: further inputs of decoder and discriminator

    def batch(self, rows: np.ndarray, context: LearnerContext) -> AdversarialBatch:
        def tensor(values: np.ndarray) -> Tensor:
            return to_device(torch.from_numpy(values[rows]), context.device)

        images = context.images(self.ids[rows])
        return AdversarialBatch(
            images,
            targets=tensor(self.targets).float(),
            labels=None if self.labels is None else tensor(self.labels).long(),
            ranks=images.new_zeros(len(rows), 0) if self.ranks is None else tensor(self.ranks).float()[:, None],
        )


class Autoencoder(nn.Module):
    """Encoder of 4x4 convolutions that halve an image until its shorter side is 2 or 3 pixels, and its mirror image.

    Works for every image size.
    """

    def __init__(self, shape: tuple[int, ...], width: int, latent: int, decoder_inputs: int) -> None:
        super().__init__()
        sizes = downsampled_sizes(shape[1:])
        widths = [width << min(i, 3) for i in range(len(sizes) - 1)]
        encoder_blocks = (downsampling_block(*channels) for channels in pairwise([shape[0], *widths]))
        self.encoder = nn.Sequential(*(layer for block in encoder_blocks for layer in block), nn.Flatten())
        flat = widths[-1] * sizes[-1][0] * sizes[-1][1]
        self.mean, self.log_variance = nn.Linear(flat, latent), nn.Linear(flat, latent)
        up = zip(pairwise(widths[::-1]), pairwise(sizes[-2::-1]), strict=True)
        decoder_blocks = (upsampling_block(*channels, *size) for channels, size in up)
        start = (widths[-1], *sizes[-2])
        self.decoder = nn.Sequential(
            nn.Linear(decoder_inputs, start[0] * start[1] * start[2]),
            nn.Unflatten(1, start),
            *(layer for block in decoder_blocks for layer in block),
            nn.ConvTranspose2d(widths[0], shape[0], 1),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log variances of the codes."""
        hidden = self.encoder(images)
        return self.mean(hidden), self.log_variance(hidden)


def downsampled_sizes(size: tuple[int, ...]) -> list[tuple[int, int]]:
    """Height and width after each convolution: from 32x32 down to 2x2."""
    sizes = [(size[0], size[1])]
    while len(sizes) == 1 or min(sizes[-1]) >= 4:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    return sizes


def downsampling_block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def upsampling_block(inputs: int, outputs: int, size: tuple[int, int], target: tuple[int, int]) -> list[nn.Module]:
    padding = (target[0] - 2 * size[0], target[1] - 2 * size[1])  # 1 where the target size is odd
    return [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def mlp(*units: int) -> nn.Sequential:
    layers = [layer for pair in pairwise(units) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class AdversarialNetworks(nn.Module):
    """Autoencoder, discriminator and, with classes, a classifier on the half of the code that is not decoded."""

    def __init__(
        self, settings: AdversarialSettings, shape: tuple[int, ...], *, classes: int, ranks: int, seed: int
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.decoded = settings.latent // 2 if classes else settings.latent  # code units that are decoded
            self.autoencoder = Autoencoder(shape, settings.width, settings.latent, self.decoded + ranks)
            self.discriminator = mlp(settings.latent + ranks, *[DISCRIMINATOR_UNITS] * settings.layers, 1)
            self.classifier = mlp(settings.latent - self.decoded, 1024, 256, classes) if classes else None
            self.apply(init_weights)

    def discriminate(self, means: Tensor, batch: AdversarialBatch) -> Tensor:
        """The discriminator's logits."""
        logits: Tensor = self.discriminator(torch.cat([means, batch.ranks], 1))[:, 0]
        return logits


def init_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class AdversarialTrainer:
    def __init__(
        self,
        settings: AdversarialSettings,
        labeled: ImageGroup,
        pool: ImageGroup,
        context: LearnerContext,
        classes: int = 0,
    ) -> None:
        self.settings, self.groups, self.context = settings, (labeled, pool), context
        self.generator = torch.Generator().manual_seed(context.seed)
        shape = tuple(context.images(pool.ids[:1]).shape[1:])
        self.networks = AdversarialNetworks(
            settings, shape, classes=classes, ranks=int(pool.ranks is not None), seed=context.seed
        ).to(context.device)
        # The encoder tries to make all images look labeled to the discriminator.
        self.encoder_target = float(labeled.targets[0])
        discriminator = [*self.networks.discriminator.parameters()]
        own = {id(parameter) for parameter in discriminator}
        others = [parameter for parameter in self.networks.parameters() if id(parameter) not in own]
        self.encoder_optimizer = torch.optim.Adam(others, settings.learning_rate)
        self.discriminator_optimizer = torch.optim.Adam(discriminator, settings.learning_rate)

    def fit_predict(self) -> np.ndarray:
        """Train, then return the discriminator's logit for every image of the pool."""
        settings = self.settings
        schedules = [
            torch.optim.lr_scheduler.StepLR(optimizer, max(1, settings.steps // 30), settings.decay)
            for optimizer in (self.encoder_optimizer, self.discriminator_optimizer)
        ]
        rows = [shuffled_batches(len(group.ids), settings.batch_size, self.generator) for group in self.groups]
        self.networks.train()
        for step in range(settings.steps):
            for _ in range(settings.encoder_steps):
                pairs = zip(self.groups, rows, strict=True)
                batches = [group.batch(next(iterator), self.context) for group, iterator in pairs]
                losses = (self.encoder_loss(batch) for batch in batches)
                optimizer_step(self.encoder_optimizer, sum(losses, torch.zeros((), device=self.context.device)))
            optimizer_step(self.discriminator_optimizer, self.discriminator_loss(batches))
            for schedule in schedules:
                schedule.step()
            self.context.advance(step + 1, settings.steps)
        return self.pool_logits()

    def encoder_loss(self, batch: AdversarialBatch) -> Tensor:
        """Loss of autoencoder and classifier: reconstruction, KL divergence, adversarial loss, classification."""
        settings, networks = self.settings, self.networks
        means, log_variances = networks.autoencoder(batch.images)
        noise = to_device(torch.randn(means.shape, generator=self.generator), means.device)
        codes = means + noise * (log_variances / 2).exp()
        decoder_inputs = torch.cat([codes[:, : networks.decoded], batch.ranks.sigmoid()], 1)
        reconstruction = functional.mse_loss(networks.autoencoder.decoder(decoder_inputs), batch.images)
        loss = settings.reconstruction * reconstruction + settings.beta * kl_divergence(means, log_variances)
        logits = networks.discriminate(means, batch)
        targets = torch.full_like(logits, self.encoder_target)
        loss = loss + settings.adversary * functional.binary_cross_entropy_with_logits(logits, targets)
        if networks.classifier is not None and batch.labels is not None:
            class_logits = networks.classifier(codes[:, networks.decoded :])
            loss = loss + settings.classification * functional.cross_entropy(class_logits, batch.labels)
        return loss

    def discriminator_loss(self, batches: list[AdversarialBatch]) -> Tensor:
        loss = torch.zeros((), device=self.context.device)
        for batch in batches:
            with torch.no_grad():
                means, _ = self.networks.autoencoder(batch.images)
            logits = self.networks.discriminate(means, batch)
            loss = loss + functional.binary_cross_entropy_with_logits(logits, batch.targets)
        return loss

    @torch.inference_mode()
    def pool_logits(self) -> np.ndarray:
        self.networks.eval()
        pool, chunks = self.groups[1], []
        for rows in batch_slices(len(pool.ids), self.settings.batch_size):
            batch = pool.batch(np.arange(len(pool.ids))[rows], self.context)
            means, _ = self.networks.autoencoder(batch.images)
            chunks.append(self.networks.discriminate(means, batch).cpu().numpy())
        logits = np.concatenate(chunks)
        if not np.isfinite(logits).all():
            raise TrainingError(
                "the strategy's own training diverged; "
                f"lower score.strategy.learning_rate (now {self.settings.learning_rate})"
            )
        return logits


def optimizer_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def kl_divergence(means: Tensor, log_variances: Tensor) -> Tensor:
    """KL divergence from the standard normal distribution: summed over a code, averaged over the images."""
    return (means.square() + log_variances.exp() - 1 - log_variances).sum(1).mean() / 2


def shuffled_batches(count: int, size: int, generator: torch.Generator) -> Iterator[np.ndarray]:
    """Endless batches of row numbers; every row comes once before any comes again."""
    remaining = np.empty(0, np.int64)
    while True:
        while len(remaining) < size:
            remaining = np.concatenate([remaining, torch.randperm(count, generator=generator).numpy()])
        yield remaining[:size]
        remaining = remaining[size:]
