"""What every unsupervised objective promises: it pulls the network, and what it trains itself, and is content when the outputs agree."""

import copy

import pytest
import torch
from torch import Tensor, nn

from codline.cli.plugins import members
from codline.models.base import Network
from codline.objectives.base import Batch, Beside, Companion, Discrepant, Objective
from codline.objectives.cyclic import Cyclic
from codline.objectives.ema import Average, Ema
from tests.families import spelled, variants


def network_of(seed: int) -> Network:
    torch.manual_seed(seed)
    return Network(nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 3), stages=("0", "1"))


def beside_of(previous: Network) -> Beside:
    return Beside(previous, lambda: network_of(99), shape=lambda: (2,))


def companion_of(objective: Objective, network: Network, previous: Network | None = None) -> Companion:
    companion = objective.companion(network, beside_of(previous or copy.deepcopy(network)))
    assert companion is not None
    return companion


def batch(network: Network, images: Tensor) -> Batch:
    stages, features, logits = network.staged(images)
    return Batch(images, features, logits, stages, -logits.log_softmax(1)[:, 0])


def loss(objective: Objective, network: Network, companion: Companion) -> Tensor:
    torch.manual_seed(5)
    return companion.loss(batch(network, torch.randn(6, 2)), batch(network, torch.randn(5, 2)))


WITH_COMPANION = [o for o in variants("objectives") if o.companion(network_of(0), beside_of(network_of(0))) is not None]
each_companion = pytest.mark.parametrize("objective", WITH_COMPANION, ids=spelled)


@pytest.mark.parametrize("kind", members("objectives"))
def test_an_objective_is_named_like_its_file(kind: type[Objective]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@pytest.mark.parametrize("objective", [each for each in WITH_COMPANION if isinstance(each, Discrepant)], ids=spelled)
def test_the_loss_is_zero_where_all_outputs_agree(objective: Discrepant) -> None:
    logits = torch.randn(6, 4)
    assert objective.distance(logits, logits.clone()) == 0


@each_companion
def test_the_gradient_reaches_the_network_and_what_the_companion_trains_alone(objective: Objective) -> None:
    network = network_of(0)
    companion = companion_of(objective, network)
    with torch.no_grad():
        network.head.weight.add_(torch.randn(3, 4))
    loss(objective, network, companion).backward()  # type: ignore[no-untyped-call]
    pulled = network.body if companion.staged else network  # the stages are of the body
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in pulled.parameters())
    reached = {parameter for parameter in companion.parameters() if parameter.grad is not None}
    assert reached == set(companion.trained())


@each_companion
def test_the_companion_is_a_copy_that_training_does_not_touch(objective: Objective) -> None:
    network = network_of(0)
    companion = companion_of(objective, network)
    before = {key: value.clone() for key, value in companion.state_dict().items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(value, before[key]) for key, value in companion.state_dict().items())


@each_companion
def test_the_weight_scales_the_loss(objective: Discrepant) -> None:
    network, previous = network_of(0), network_of(1)
    light, heavy = (objective.model_copy(update={"weight": weight}) for weight in (1.0, 3.0))
    torch.manual_seed(0)
    one = loss(light, network, companion_of(light, previous, previous))
    torch.manual_seed(0)
    three = loss(heavy, network, companion_of(heavy, previous, previous))
    assert float(three.detach()) == pytest.approx(3 * float(one.detach()), rel=1e-4)
    assert one > 0


@pytest.mark.parametrize(("reduce", "share"), [("sum", 1), ("mean", 1 / 2)])
def test_the_loss_is_the_squared_distance_of_the_outputs(reduce: str, share: float) -> None:
    ours, theirs = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 3.0]])
    objective = Ema.model_validate({"outputs": "logits", "reduce": reduce})
    assert objective.distance(ours, theirs) == pytest.approx(share * (5 + 9) / 2)
    apart = (ours.softmax(1) - theirs.softmax(1)).square().sum(1).mean()
    assert objective.model_copy(update={"outputs": "probs"}).distance(ours, theirs) == pytest.approx(share * apart)


def test_the_loss_of_dense_outputs_is_a_mean_over_the_pixels() -> None:
    ours, theirs = torch.zeros(2, 3, 4, 5), torch.ones(2, 3, 4, 5)
    assert Ema(outputs="logits").distance(ours, theirs) == 3


def test_two_heads_add_the_four_terms_of_the_released_code() -> None:
    """head 1 to head 2 and head 2 to the average, on labelled and on unlabelled images."""
    network = network_of(0)
    objective = Ema(weight=2.0, heads=2, outputs="logits", reduce="mean", start="independent")
    companion = companion_of(objective, network)
    assert isinstance(companion, Average)
    assert companion.second is not None
    torch.manual_seed(5)
    batches = [batch(network, torch.randn(6, 2)), batch(network, torch.randn(5, 2))]
    terms = []
    for some in batches:
        second = companion.second(some.features)
        terms += [
            nn.functional.mse_loss(some.logits, second),
            nn.functional.mse_loss(second, network_of(99)(some.images)),
        ]
    assert float(companion.loss(*batches).detach()) == pytest.approx(2 * float(sum(terms).detach()), rel=1e-5)
    assert not torch.equal(companion.second.weight, network.head.weight)


@pytest.mark.parametrize("decay", [0.0, 0.6, 0.999])
@pytest.mark.parametrize("warm_up", [True, False])
def test_the_average_follows_the_weights_as_computed_by_hand(decay: float, warm_up: bool) -> None:
    """The first update takes the weights as they are; the n-th after it keeps n/(n+1) of the average, at most `decay`."""
    network = network_of(0)
    companion = companion_of(Ema(decay=decay, warm_up=warm_up), network)
    assert isinstance(companion, Average)
    expected = 0.0
    for n, value in enumerate([4.0, 10.0, -2.0, 7.0, 1.0]):
        with torch.no_grad():
            network.head.weight.fill_(value)
        companion.update(network)
        keep = min(decay, n / (n + 1)) if warm_up or n == 0 else decay
        expected = keep * expected + (1 - keep) * value
        assert float(companion.average.module.head.weight[0, 0]) == pytest.approx(expected, rel=1e-6)


def test_an_average_that_starts_elsewhere_forgets_it_as_the_released_code_does() -> None:
    """After t steps the start has the weight 1/(t+1)."""
    network = network_of(0)
    companion = companion_of(Ema(start="independent"), network)
    assert isinstance(companion, Average)
    start = float(network_of(99).head.weight[0, 0].detach())
    with torch.no_grad():
        network.head.weight.fill_(3.0)
    for t in range(1, 6):
        companion.update(network)
        assert float(companion.average.module.head.weight[0, 0]) == pytest.approx((start + 3.0 * t) / (t + 1), rel=1e-5)


@pytest.mark.parametrize("buffers", ["batch", "averaged"])
def test_normalisation_statistics_are_averaged_only_where_that_is_asked_for(buffers: str) -> None:
    network = Network(nn.BatchNorm1d(2), nn.Linear(2, 3))
    companion = companion_of(Ema.model_validate({"buffers": buffers}), network)
    assert isinstance(companion, Average)
    for _ in range(3):
        network.body(torch.randn(8, 2) + 5)
        companion.update(network)
    ours, averaged = network.body.running_mean, companion.average.module.body.running_mean
    assert torch.equal(ours, averaged) == (buffers == "batch")
    assert averaged.abs().sum() > 0


def test_an_average_that_persists_goes_on_from_the_last_cycle() -> None:
    network = network_of(0)
    left = companion_of(Ema(), network)
    with torch.no_grad():
        network.head.weight.fill_(3.0)
    left.update(network)
    beside = Beside(network, lambda: network_of(1), left.state_dict())
    gone_on, anew = (Ema(persists=persists).companion(network_of(7), beside) for persists in (True, False))
    assert float(gone_on.average.module.head.weight[0, 0]) == 3.0
    assert int(gone_on.average.n_averaged) == 1
    assert float(anew.average.module.head.weight[0, 0]) != 3.0


def test_the_cyclic_objective_has_nothing_to_compare_with_in_the_first_cycle() -> None:
    assert Cyclic().companion(network_of(0), Beside(None)) is None


def test_the_cyclic_objective_compares_with_the_last_cycle_s_model() -> None:
    network, previous, images = network_of(0), network_of(1), torch.randn(5, 2)
    companion = companion_of(Cyclic(weight=1.0, outputs="logits"), network, previous)
    apart = (network(images) - previous(images)).square().sum(1).mean()
    assert float(companion.loss(batch(network, images), batch(network, images)).detach()) == pytest.approx(
        float(apart.detach()), rel=1e-5
    )


def test_an_average_without_a_weight_is_kept_and_adds_no_loss() -> None:
    companion = companion_of(Ema(weight=0.0), network_of(0))
    assert not companion.active
