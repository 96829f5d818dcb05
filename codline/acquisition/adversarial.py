"""An autoencoder and a discriminator that play against each other over which images are labelled (Sinha et al., 2019, and those after them)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import TrainingError
from codline.learning.inference import stretches

UNITS = 512  # in a hidden layer of the discriminator


@dataclass(frozen=True)
class Settings:
    steps: int
    batch_size: int
    latent: int
    width: int  # channels of the first convolution; the next three have twice as many each
    beta: float  # weight of the codes' divergence from the normal distribution
    adversary: float  # weight of the discriminator's verdict
    learning_rate: float
    decay: float = 1.0  # thirty times, evenly spread, the learning rate is multiplied with it
    layers: int = 2  # hidden ones of the discriminator
    encoder_steps: int = 2  # of the autoencoder for one of the discriminator
    reconstruction: float = 1.0
    classification: float = 0.0


@dataclass(frozen=True)
class Side:
    """The labelled images, or the unlabelled ones, rows aligned."""

    ids: np.ndarray
    states: np.ndarray  # what the discriminator is taught to say, from 0 to 1
    labels: np.ndarray | None = None  # classes, where the codes are to tell them
    ranks: np.ndarray | None = None  # what decoder and discriminator are told of an image, besides its code

    def batch(self, rows: np.ndarray, bench: LearnerContext) -> "Batch":
        images = bench.images(self.ids[rows])
        state, label, rank = (
            None if values is None else torch.from_numpy(values[rows]).to(bench.device)
            for values in (self.states, self.labels, self.ranks)
        )
        assert state is not None
        return Batch(
            images,
            state.float(),
            None if label is None else label.long(),
            images.new_zeros(len(rows), 0) if rank is None else rank.float()[:, None],
        )


@dataclass(frozen=True)
class Batch:
    images: Tensor
    states: Tensor
    labels: Tensor | None
    ranks: Tensor  # (images, 1), or (images, 0) where there are none


class Autoencoder(nn.Module):
    """Convolutions of 4x4 that halve an image until its shorter side is two or three pixels long, and others that double it again: any size will do."""

    def __init__(self, shape: tuple[int, ...], width: int, latent: int, told: int) -> None:
        super().__init__()
        sizes = halved(shape[1:])
        widths = [width << min(i, 3) for i in range(len(sizes) - 1)]
        halvings = (halving(*pair) for pair in pairwise([shape[0], *widths]))
        self.encoder = nn.Sequential(*(layer for layers in halvings for layer in layers), nn.Flatten())
        flat = widths[-1] * sizes[-1][0] * sizes[-1][1]
        self.mean, self.log_variance = nn.Linear(flat, latent), nn.Linear(flat, latent)
        doublings = (
            doubling(*pair, *size) for pair, size in zip(pairwise(widths[::-1]), pairwise(sizes[-2::-1]), strict=True)
        )
        start = (widths[-1], *sizes[-2])
        self.decoder = nn.Sequential(
            nn.Linear(told, start[0] * start[1] * start[2]),
            nn.Unflatten(1, start),
            *(layer for layers in doublings for layer in layers),
            nn.ConvTranspose2d(widths[0], shape[0], 1),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of the variances of the codes."""
        seen = self.encoder(images)
        return self.mean(seen), self.log_variance(seen)


def halved(size: tuple[int, ...]) -> list[tuple[int, int]]:
    """The heights and widths on the way down: of 32x32, down to 2x2."""
    sizes = [(size[0], size[1])]
    while len(sizes) == 1 or min(sizes[-1]) >= 4:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    return sizes


def halving(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def doubling(inputs: int, outputs: int, size: tuple[int, int], wanted: tuple[int, int]) -> list[nn.Module]:
    odd = (wanted[0] - 2 * size[0], wanted[1] - 2 * size[1])
    return [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, odd, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def perceptron(*units: int) -> nn.Sequential:
    layers = [layer for pair in pairwise(units) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Players(nn.Module):
    """Those who play. With classes, half of a code tells the class, and the decoder hears the other half alone."""

    def __init__(self, settings: Settings, shape: tuple[int, ...], classes: int, ranks: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.heard = settings.latent // 2 if classes else settings.latent
            self.autoencoder = Autoencoder(shape, settings.width, settings.latent, self.heard + ranks)
            self.discriminator = perceptron(settings.latent + ranks, *[UNITS] * settings.layers, 1)
            self.classifier = perceptron(settings.latent - self.heard, 1024, 256, classes) if classes else None
            self.apply(started)

    def verdicts(self, means: Tensor, batch: Batch) -> Tensor:
        """Logits of the state."""
        logits: Tensor = self.discriminator(torch.cat([means, batch.ranks], 1))[:, 0]
        return logits


def started(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class Game:
    def __init__(self, settings: Settings, known: Side, pool: Side, bench: LearnerContext, classes: int = 0) -> None:
        self.settings, self.sides, self.bench = settings, (known, pool), bench
        self.generator = torch.Generator().manual_seed(bench.seed)
        shape = tuple(bench.images(pool.ids[:1]).shape[1:])
        self.players = Players(settings, shape, classes, int(pool.ranks is not None), bench.seed).to(bench.device)
        # Of the labelled images' state the encoder tries to convince the discriminator, whatever it shows.
        self.aim = float(known.states[0])
        judge = [*self.players.discriminator.parameters()]
        mine = {id(parameter) for parameter in judge}
        rest = [parameter for parameter in self.players.parameters() if id(parameter) not in mine]
        self.encoding, self.judging = (
            torch.optim.Adam(parameters, settings.learning_rate) for parameters in (rest, judge)
        )

    def play(self) -> np.ndarray:
        """Train, then say for every image of the pool what state it seems to be in, as a logit."""
        settings, advance = self.settings, self.bench.advance
        schedules = [
            torch.optim.lr_scheduler.StepLR(each, max(1, settings.steps // 30), settings.decay)
            for each in (self.encoding, self.judging)
        ]
        rows = [endless(len(side.ids), settings.batch_size, self.generator) for side in self.sides]
        self.players.train()
        for step in range(settings.steps):
            for _ in range(settings.encoder_steps):
                batches = [side.batch(next(some), self.bench) for side, some in zip(self.sides, rows, strict=True)]
                stepped(self.encoding, self.encoder_loss(batches))
            stepped(self.judging, self.judge_loss(batches))
            for schedule in schedules:
                schedule.step()
            advance(step + 1, settings.steps)
        return self.states()

    def encoder_loss(self, batches: list[Batch]) -> Tensor:
        return sum((self.told(batch) for batch in batches), torch.zeros((), device=self.bench.device))

    def told(self, batch: Batch) -> Tensor:
        """What the images of a batch cost the autoencoder: what it forgets of them, what it tells of them, what gives them away."""
        settings, players = self.settings, self.players
        means, log_variances = players.autoencoder(batch.images)
        noise = torch.randn(means.shape, generator=self.generator).to(means.device)
        codes = means + noise * (log_variances / 2).exp()
        again = players.autoencoder.decoder(torch.cat([codes[:, : players.heard], batch.ranks.sigmoid()], 1))
        loss = settings.reconstruction * functional.mse_loss(again, batch.images) + settings.beta * divergence(
            means, log_variances
        )
        verdicts = players.verdicts(means, batch)
        loss = loss + settings.adversary * functional.binary_cross_entropy_with_logits(
            verdicts, torch.full_like(verdicts, self.aim)
        )
        if players.classifier is not None and batch.labels is not None:
            loss = loss + settings.classification * functional.cross_entropy(
                players.classifier(codes[:, players.heard :]), batch.labels
            )
        return loss

    def judge_loss(self, batches: list[Batch]) -> Tensor:
        loss = torch.zeros((), device=self.bench.device)
        for batch in batches:
            with torch.no_grad():
                means, _ = self.players.autoencoder(batch.images)
            loss = loss + functional.binary_cross_entropy_with_logits(self.players.verdicts(means, batch), batch.states)
        return loss

    @torch.inference_mode()
    def states(self) -> np.ndarray:
        self.players.eval()
        pool, found = self.sides[1], []
        for rows in stretches(len(pool.ids), self.settings.batch_size):
            batch = pool.batch(np.arange(len(pool.ids))[rows], self.bench)
            found.append(self.players.verdicts(self.players.autoencoder(batch.images)[0], batch).cpu().numpy())
        states = np.concatenate(found)
        if not np.isfinite(states).all():
            raise TrainingError(
                f"the strategy's own training diverged; lower score.strategy.learning_rate (now {self.settings.learning_rate})"
            )
        return states


def stepped(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def divergence(means: Tensor, log_variances: Tensor) -> Tensor:
    """From the standard normal distribution (Kullback and Leibler's): the sum over a code, the mean over the images."""
    return (means.square() + log_variances.exp() - 1 - log_variances).sum(1).mean() / 2


def endless(count: int, size: int, generator: torch.Generator) -> Iterator[np.ndarray]:
    """Batch after batch of rows; each row comes once before any comes again."""
    left = np.empty(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, torch.randperm(count, generator=generator).numpy()])
        yield left[:size]
        left = left[size:]
