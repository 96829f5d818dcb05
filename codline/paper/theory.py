"""Checks the bounds of Huang et al. (2021) numerically: `codline paper proofs`

The paper bounds the discrepancy D = ||f(x; w_{t+T}) - f(x; w_t)|| of an image x after T steps of gradient descent on
its own squared loss L(x) = ||y - f(x; w)||^2 / 2, with learning rate eta and C >= ||grad_w f||^2:

    Theorem 1    D <= eta sqrt(2 L_t) ||grad_w f(x; w_t)||^2                                       for T = 1
    Corollary 1  D <= sqrt(2) eta  sum_tau sqrt(L_tau) ||grad_w f(x; w_tau)||^2
    Corollary 2  D <= sqrt(2 T) eta C sqrt(sum_tau L_tau)
    Remark 1     a linear layer with ReLU is Lipschitz in its weights, with constant ||x||

The proofs stop at first order in eta. Each check says how far that holds, on small networks in double precision. They
test the paper, not this package. All of them take about ten seconds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from codline.paper.campaigns import Request
from codline.paper.drawing import Drawing, Table

SAMPLES, ACTIVATIONS = range(20), (nn.Tanh, nn.ReLU)


@dataclass
class Sample:
    """A network, one image x and its label y. Weights w are one long vector."""

    network: nn.Sequential
    x: Tensor
    y: Tensor

    def outputs(self, w: Tensor) -> Tensor:
        parameters = dict(self.network.named_parameters())
        parts = w.split([parameter.numel() for parameter in parameters.values()])
        named = {key: part.view_as(parameters[key]) for key, part in zip(parameters, parts, strict=True)}
        outputs: Tensor = torch.func.functional_call(self.network, named, (self.x,))
        return outputs

    def initial_weights(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.network.parameters()).detach()

    def loss(self, w: Tensor) -> Tensor:
        return (self.y - self.outputs(w)).square().sum() / 2

    def squared_gradient(self, w: Tensor) -> float:
        """||grad_w f||^2; with several outputs, the squared spectral norm of the Jacobian."""
        return float(torch.linalg.matrix_norm(torch.func.jacrev(self.outputs)(w), 2) ** 2)

    def descend(self, rate: float, steps: int) -> list[Tensor]:
        """The weights w_t, ..., w_{t+T} of gradient descent on the loss of x."""
        path = [self.initial_weights()]
        for _ in range(steps):
            path.append(path[-1] - rate * torch.func.grad(self.loss)(path[-1]))
        return path

    def discrepancy(self, path: list[Tensor]) -> float:
        return float((self.outputs(path[-1]) - self.outputs(path[0])).norm())


def make_sample(seed: int, activation: type[nn.Module] = nn.Tanh, outputs: int = 1) -> Sample:
    torch.manual_seed(seed)
    layers = [nn.Linear(5, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, outputs)]
    return Sample(nn.Sequential(*layers), torch.randn(5), 2 * torch.randn(outputs))


def corollary_1(sample: Sample, rate: float, path: list[Tensor]) -> float:
    """With one step it is Theorem 1."""
    return 2**0.5 * rate * sum(float(sample.loss(w).sqrt()) * sample.squared_gradient(w) for w in path[:-1])


def corollary_2(sample: Sample, rate: float, path: list[Tensor]) -> float:
    """With the smallest C that holds on the path."""
    largest = max(sample.squared_gradient(w) for w in path[:-1])
    total_loss = sum(float(sample.loss(w)) for w in path[:-1])
    return rate * largest * math.sqrt(2 * len(path[:-1]) * total_loss)


def check_first_order(steps: int, bound: Callable[[Sample, float, list[Tensor]], float]) -> str:
    """For a scalar output, bound and discrepancy are equal to first order: |D / bound - 1| shrinks with eta."""
    worst = 0.0
    for sample in (make_sample(seed, activation) for seed in SAMPLES for activation in ACTIVATIONS):
        errors = []
        for rate in (1e-4, 1e-5):
            path = sample.descend(rate, steps)
            errors.append(abs(sample.discrepancy(path) / bound(sample, rate, path) - 1))
        assert errors[0] < 0.05
        assert errors[1] < 0.15 * errors[0]
        worst = max(worst, errors[0])
    return f"discrepancy / bound is within {worst:.1e} of 1 at eta = 1e-4, and ten times closer at 1e-5"


def check_curvature() -> str:
    """D - bound is eta^2 times a curvature of either sign: as an inequality, Theorem 1 fails for some samples."""
    exceeded, rate = 0, 1e-4
    for sample in map(make_sample, SAMPLES):
        path = sample.descend(rate, 1)
        gradient = torch.func.grad(lambda w, sample=sample: sample.outputs(w).squeeze())
        slope, hessian = gradient(path[0]), torch.func.jacrev(gradient)(path[0])
        residual = float(sample.y - sample.outputs(path[0]))
        predicted = 0.5 * rate**2 * abs(residual) * residual * float(slope @ hessian @ slope)
        excess = sample.discrepancy(path) - corollary_1(sample, rate, path)
        assert abs(excess - predicted) < max(0.05 * abs(predicted), 1e-13)
        exceeded += excess > 0
    assert 0 < exceeded < len(SAMPLES)
    return f"the bound is exceeded, to second order in eta, for {exceeded} of {len(SAMPLES)} samples"


def check_several_outputs() -> str:
    """With several outputs, the spectral norm of the Jacobian is larger than needed for most samples."""
    ratios = []
    for sample in (make_sample(seed, activation, outputs=4) for seed in SAMPLES for activation in ACTIVATIONS):
        path = sample.descend(1e-4, 1)
        ratios.append(sample.discrepancy(path) / corollary_1(sample, 1e-4, path))
    assert max(ratios) < 1.001
    exceeded, mean = sum(ratio > 1 for ratio in ratios), sum(ratios) / len(ratios)
    return f"with 4 outputs, discrepancy / bound is {mean:.2f} on average, above 1 for {exceeded} of {len(ratios)}"


def check_corollary_order() -> str:
    """Corollary 2 follows from Corollary 1 by Cauchy-Schwarz and C, at every learning rate."""
    for sample in (make_sample(seed, activation) for seed in SAMPLES for activation in ACTIVATIONS):
        for rate in (1e-3, 0.1):
            path = sample.descend(rate, 5)
            assert corollary_1(sample, rate, path) <= corollary_2(sample, rate, path) * (1 + 1e-12)
    return "corollary 2 is never tighter than corollary 1"


def check_other_image() -> str:
    """How COD uses the theorem: the unlabeled image is not the one that was trained on."""
    trained = make_sample(0)
    path = trained.descend(0.01, 1)
    other = Sample(trained.network, trained.x + 1, trained.y)
    other.y = other.outputs(path[0])
    assert float(other.loss(path[0])) == 0
    moved = other.discrepancy(path)
    assert moved > 1e-4
    return f"the outputs of an image with zero loss change by {moved:.1e}: its own loss bounds nothing"


def check_lipschitz() -> str:
    """Remark 1, for weights without bias. With the bias among the weights, the constant is sqrt(||x||^2 + 1)."""
    for seed in SAMPLES:
        torch.manual_seed(seed)
        weights, bias, x = torch.randn(7, 5), torch.randn(7), torch.randn(5)
        for scale in (1e-6, 1e-2, 1.0, 100.0):
            change = scale * torch.randn(7, 5)
            moved = (((weights + change) @ x + bias).relu() - (weights @ x + bias).relu()).norm()
            assert moved <= x.norm() * torch.linalg.matrix_norm(change, 2) * (1 + 1e-12)
    x = torch.tensor([0.1] * 4)
    direction = torch.cat([x, torch.ones(1)])  # of weights and bias of one active unit
    ratio = float(direction @ direction / direction.norm())
    assert ratio > float(x.norm())
    return f"holds for the weights; with the bias, the constant for ||x|| = {x.norm():.1f} is {ratio:.3f}"


CHECKS: dict[str, Callable[[], str]] = {
    "Theorem 1": lambda: check_first_order(1, corollary_1),
    "Theorem 1, as an inequality": check_curvature,
    "Theorem 1, several outputs": check_several_outputs,
    "Corollary 1": lambda: check_first_order(5, corollary_1),
    "Corollary 2": lambda: check_first_order(5, corollary_2),
    "Corollaries": check_corollary_order,
    "Other images": check_other_image,
    "Remark 1": check_lipschitz,
}


def bounds(_: Request) -> Drawing:
    """The proofs of the supplementary: what holds of each statement on small networks in double precision."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        rows = [[name, check()] for name, check in CHECKS.items()]
    finally:
        torch.set_default_dtype(default)
    note = f"{len(SAMPLES)} random networks of two hidden layers for each activation; docs/method.md says what follows."
    return Drawing(None, Table(["statement", "what holds"], rows), [note])
