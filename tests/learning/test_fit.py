"""fit(): training gives the same bytes in one go, resumed after a kill, or in another process."""

import copy
import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from codline.core.errors import TrainingError, UserError
from codline.data import tables
from codline.learning import checkpoints
from codline.learning.checkpoints import Checkpoint
from codline.learning.fit import TrainingData, TrainingRun, TrainingState, fit
from codline.learning.inference import Normalize
from codline.learning.model_file import read_tensors, tensors_under
from codline.learning.recipe import Recipe
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from codline.objectives.base import TrainingContext
from codline.objectives.ema import EmaObjective
from codline.runtime import code_files
from tests.bits import flip_bit
from tests.workspace import Workspace

EPOCHS = 5
STEPS = 3  # per epoch: 25 images in batches of 8, the last image joining the last batch
EMA: dict[str, Any] = {"name": "ema", "weight": 0.5, "decay": 0.9}
LL4AL: dict[str, Any] = {"name": "ll4al", "width": 4}
OBJECTIVES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "ema": [EMA],
    "ll4al": [LL4AL],
    "ema and ll4al": [EMA | {"heads": 2}, LL4AL],
    "fixmatch": [{"name": "fixmatch", "threshold": 0.4}],
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": "adam", "momentum": 0.0, "learning_rate": 0.005},
}
IMAGE_SHAPE = (1, 6, 6)
FIRST_CYCLE = TrainingContext(IMAGE_SHAPE)
STATE = TrainingState(3, {"network.weight": torch.ones(100)}, [{"epoch": 3}])


def make_recipe(names: str = "ema", **changes: Any) -> Recipe:
    settings = {
        "epochs": EPOCHS,
        "batch_size": 8,
        "learning_rate": 0.05,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "decay_at": 0.8,
        "decay_by": 0.1,
        "start_from": "previous",
        "augment": {"crop": 1, "flip": True},
        "objectives": OBJECTIVES[names],
    }
    return Recipe.model_validate(settings | changes)


def make_network() -> Network:
    """With every kind of state: batch-norm statistics, and dropout, which draws from torch's global stream."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        return Network(body, nn.Linear(4 * 4 * 4, 3), stages=("1", "2"))


def make_data() -> TrainingData:
    pixels = np.random.default_rng(0).integers(0, 256, (60, *IMAGE_SHAPE), np.uint8)
    return TrainingData(
        take=pixels.__getitem__,
        labeled_ids=np.arange(25),
        labels=np.random.default_rng(1).integers(0, 3, 25, np.int32),
        unlabeled_ids=np.arange(25, 60),
        normalize=Normalize([0.5], [0.3], torch.device("cpu")),
    )


def train(recipe: Recipe, **options: Any) -> tuple[bytes, TrainingState]:
    """All weights as bytes, and the final state."""
    network = make_network()
    final = fit(network, make_data(), recipe, FIRST_CYCLE, seed=7, **options)
    return b"".join(value.numpy().tobytes() for value in network.state_dict().values()), final


def copy_into(states: list[TrainingState]) -> Callable[[TrainingState], None]:
    return lambda state: states.append(copy.deepcopy(state))


@cache
def train_uninterrupted(objective: str, optimizer: str = "sgd") -> tuple[bytes, TrainingState]:
    return train(make_recipe(objective, **OPTIMIZERS[optimizer]))


def assert_same_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.fixture
def make_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checkpoint]:
    """Makes the checkpoint of a training with one input file and the given settings."""
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path / "scratch"))
    (tmp_path / "labeled").write_text("labels")
    return lambda **settings: Checkpoint([tmp_path / "labeled"], **settings)


class KilledError(Exception):
    pass


@pytest.mark.parametrize(
    ("objective", "epoch", "optimizer"),
    [
        (objective, epoch, optimizer)
        for (objective, epoch), optimizer in zip(
            itertools.product(OBJECTIVES, range(1, EPOCHS + 1)), itertools.cycle(OPTIMIZERS), strict=False
        )
    ],
)
def test_fit_killed_after_any_epoch_and_resumed_gives_the_same_bytes(
    make_checkpoint: Callable[..., Checkpoint], objective: str, epoch: int, optimizer: str
) -> None:
    recipe = make_recipe(objective, **OPTIMIZERS[optimizer])
    uninterrupted, expected = train_uninterrupted(objective, optimizer)
    checkpoint = make_checkpoint(params=recipe.model_dump())

    def write_until_killed(state: TrainingState) -> None:
        checkpoint.write(state)
        if state.epoch == epoch:
            raise KilledError

    with pytest.raises(KilledError):
        train(recipe, on_epoch=write_until_killed)
    torch.manual_seed(12345)  # random draws between the kill and the resume must not matter
    resume = make_checkpoint(params=recipe.model_dump()).read()
    assert resume is not None
    assert resume.epoch == epoch
    resumed, final = train(recipe, resume=resume)
    assert resumed == uninterrupted
    assert final.curve == expected.curve
    assert_same_tensors(final.tensors, expected.tensors)


@pytest.mark.parametrize(
    ("interval", "written"), [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (30, [3, 6, 8]), (31, [4, 8]), (math.inf, [8])], ids=str
)
def test_checkpoint_is_written_at_intervals_and_after_the_last_epoch(
    make_checkpoint: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch, interval: float, written: list[int]
) -> None:
    """Here an epoch takes ten seconds."""
    epochs, clock, found = 8, {"now": 0}, set()

    def write_if_due(state: TrainingState) -> None:
        clock["now"] = 10 * state.epoch
        checkpoint.write_if_due(state, epochs)
        if checkpoint.path.exists() and (last := checkpoints.read_state(checkpoint.path)) is not None:
            found.add(last.epoch)

    monkeypatch.setattr(checkpoints, "INTERVAL_SECONDS", interval)
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock["now"])
    checkpoint = make_checkpoint(seed=0)
    train(make_recipe(epochs=epochs), on_epoch=write_if_due)
    assert sorted(found) == written


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_fit_with_the_same_seed_gives_the_same_bytes(objective: str) -> None:
    assert train(make_recipe(objective))[0] == train_uninterrupted(objective)[0]


def test_fit_depends_on_every_field_of_the_recipe() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"batch_size": 9},
        {"learning_rate": 0.06},
        {"momentum": 0.8},
        {"weight_decay": 0.0},
        {"decay_at": 0.5},
        {"decay_by": 0.5},
        {"augment": {"crop": 0, "flip": True}},
        {"augment": {"crop": 1, "flip": False}},
        {"objectives": OBJECTIVES["none"]},
        {"objectives": [EMA | {"decay": 0.1}]},
    ]
    assert len({train(make_recipe(**change))[0] for change in changes}) == len(changes)


def test_learning_rate_decays_after_four_fifths_of_the_epochs() -> None:
    _, final = train(make_recipe(epochs=10))
    assert [row["learning_rate"] for row in final.curve] == pytest.approx([0.05] * 8 + [0.005] * 2)
    assert [row["epoch"] for row in final.curve] == list(range(1, 11))


def test_dropout_of_a_model_is_active_in_training_and_resumed_exactly() -> None:
    weights, states = {}, list[TrainingState]()
    for rate, options in ((0, {}), (0.5, {"on_epoch": copy_into(states)}), (0.5, {"resume": states})):
        network = SmallCnn(width=2, dropout=rate).initial_network(3, IMAGE_SHAPE, seed=0)
        if "resume" in options:
            options = {"resume": states[1]}
            torch.manual_seed(12345)
        fit(network, make_data(), make_recipe(), FIRST_CYCLE, seed=7, **options)
        values = b"".join(value.numpy().tobytes() for value in network.state_dict().values())
        weights[rate, *options] = values
    assert weights[0.5, "on_epoch"] == weights[0.5, "resume"] != weights[0,]


def test_training_curve_has_a_falling_task_loss_and_the_unsupervised_loss() -> None:
    with_ema, without = (train(make_recipe(name, epochs=20, augment={}))[1].curve for name in ("ema", "none"))
    assert with_ema[-1]["task_loss"] < with_ema[0]["task_loss"] / 2
    assert with_ema[0]["unsupervised_loss"] > 0
    assert all(row["unsupervised_loss"] == 0 for row in without)


def test_fit_needs_no_unlabeled_images() -> None:
    data = replace(make_data(), unlabeled_ids=np.empty(0, np.int64))
    assert fit(make_network(), data, make_recipe("ema"), FIRST_CYCLE, seed=7).epoch == EPOCHS


def test_fit_stops_on_a_loss_that_is_not_finite_and_the_last_good_checkpoint_remains(
    make_checkpoint: Callable[..., Checkpoint],
) -> None:
    checkpoint = make_checkpoint(params="diverging")
    recipe = make_recipe("none", epochs=40, learning_rate=1e7, weight_decay=1.0, batch_size=25)
    with pytest.raises(TrainingError) as caught:
        train(recipe, on_epoch=checkpoint.write)
    last = checkpoint.read()
    assert last is not None
    assert 1 <= last.epoch < recipe.epochs
    assert str(caught.value).startswith(f"training diverged in epoch {last.epoch + 1} of 40: the loss is ")
    assert str(caught.value).endswith("; lower train.learning_rate (now 10000000.0)")
    assert caught.value.exit_code == 4
    assert all(value.isfinite().all() for value in tensors_under("network", last.tensors).values())


def test_fit_stops_on_weights_that_diverge_in_the_last_step(make_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = make_checkpoint(params="one step")
    recipe = make_recipe("none", epochs=1, batch_size=25, learning_rate=1e38, weight_decay=1e10)
    with pytest.raises(TrainingError):
        train(recipe, on_epoch=checkpoint.write)
    assert checkpoint.read() is None


@pytest.mark.parametrize(
    "change", [{"params": {"epochs": 6}}, {"seed": 1}, {"cycle": "c2"}, {"compute": {"threads": 2}}]
)
def test_checkpoint_of_other_settings_is_not_resumed(
    make_checkpoint: Callable[..., Checkpoint], change: dict[str, Any]
) -> None:
    settings = {"params": {"epochs": 5}, "seed": 0, "cycle": "c1", "compute": {"threads": 1}}
    make_checkpoint(**settings).write(STATE)
    assert make_checkpoint(**settings).read() is not None
    assert make_checkpoint(**settings | change).read() is None


def test_checkpoint_of_other_inputs_is_not_resumed(make_checkpoint: Callable[..., Checkpoint], tmp_path: Path) -> None:
    make_checkpoint(seed=0).write(STATE)
    (tmp_path / "labeled").write_text("other labels")
    assert make_checkpoint(seed=0).read() is None


def test_checkpoint_of_other_code_is_not_resumed(
    make_checkpoint: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"codline/learning/checkpoints.py", "codline/core/files.py"} <= set(code_files.imported_files())
    make_checkpoint(seed=0).write(STATE)
    other = code_files.code_at_start() | {"codline/learning/fit.py": "0" * 64}
    monkeypatch.setattr(code_files, "code_at_start", lambda: other)
    assert make_checkpoint(seed=0).read() is None


def test_truncated_checkpoint_is_discarded(make_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = make_checkpoint(seed=0)
    checkpoint.write(STATE)
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:-100])
    assert checkpoint.read() is None
    assert not checkpoint.path.exists()


@given(data=st.data())
def test_checkpoint_with_any_flipped_bit_is_discarded_for_the_one_before(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "labeled").write_text("labels")
    with pytest.MonkeyPatch.context() as patch:
        warnings = BufferingHandler(capacity=10)
        patch.setattr(logging.getLogger("codline"), "handlers", [warnings])
        patch.setenv("CODLINE_STATE_DIRECTORY", str(folder))
        checkpoint = Checkpoint([folder / "labeled"], seed=0)
        for epoch in (1, 2):
            checkpoint.write(replace(STATE, epoch=epoch))
        flip_bit(checkpoint.path, data.draw(st.integers(0, 8 * checkpoint.path.stat().st_size - 1)))
        resumed = checkpoint.read()
    assert resumed is not None
    assert resumed.epoch == 1
    (warning,) = [record.getMessage() for record in warnings.buffer]
    assert warning.endswith("damaged, so it was discarded; training goes on after epoch 1")


def test_checkpoints_of_the_last_three_trainings_are_kept(
    make_checkpoint: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    for seed in range(6):
        make_checkpoint(seed=seed).write(STATE)
    assert len(list((tmp_path / "scratch" / "checkpoints").iterdir())) == 3
    assert make_checkpoint(seed=5).read() is not None


def test_train_killed_in_the_middle_and_run_again_writes_the_same_bytes(workspace: Workspace) -> None:
    outputs = workspace.outputs("train", "c2")
    expected = [path.read_bytes() for path in outputs]
    with pytest.MonkeyPatch.context() as patch:
        write = Checkpoint.write

        def write_until_killed(self: Checkpoint, state: TrainingState) -> None:
            write(self, state)
            if state.epoch == 2:
                raise KilledError

        patch.setattr(checkpoints, "INTERVAL_SECONDS", 0)
        patch.setattr(Checkpoint, "write", write_until_killed)
        for path in outputs:
            path.unlink()
        with pytest.raises(KilledError):
            workspace.run("train", "c2")
    assert not any(path.exists() for path in outputs)
    (checkpoint,) = Path(".codline/checkpoints").glob("*/last.checkpoint")
    state = checkpoints.read_state(checkpoint)
    assert state is not None
    assert state.epoch == 2
    workspace.run("train", "c2")
    assert [path.read_bytes() for path in outputs] == expected


@pytest.mark.slow
def test_train_in_another_process_writes_the_same_bytes(workspace: Workspace) -> None:
    outputs = workspace.outputs("train", "c1")
    expected = [path.read_bytes() for path in outputs]
    for path in outputs:
        path.unlink()
    assert workspace.command("train", "c1").returncode == 0
    assert [path.read_bytes() for path in outputs] == expected


def test_snapshot_has_the_weights_of_the_given_number_of_steps_before_the_end() -> None:
    states: list[TrainingState] = []
    recipe = make_recipe(snapshots=[STEPS, 2 * STEPS, EPOCHS * STEPS, 1])
    _, final = train(recipe, on_epoch=copy_into(states))
    for epochs_before_end in (1, 2):
        weights = tensors_under("network", states[EPOCHS - 1 - epochs_before_end].tensors)
        assert_same_tensors(tensors_under(f"snapshot.{epochs_before_end * STEPS}", final.tensors), weights)
    first = tensors_under(f"snapshot.{EPOCHS * STEPS}", final.tensors)
    assert_same_tensors(first, make_network().state_dict())
    assert tensors_under("snapshot.1", final.tensors).keys() == first.keys()


def test_snapshot_can_be_a_share_of_the_steps_before_the_end() -> None:
    _, by_share = train(make_recipe(snapshots=[0.2, 1]))
    _, by_number = train(make_recipe(snapshots=[EPOCHS * STEPS // 5, 1]))
    assert_same_tensors(by_share.tensors, by_number.tensors)
    assert int(by_share.tensors["steps.total"]) == EPOCHS * STEPS


def test_snapshots_are_the_same_after_a_resume_and_change_nothing_else() -> None:
    recipe, states = make_recipe(snapshots=[2, 4, 11]), list[TrainingState]()
    uninterrupted, expected = train(recipe, on_epoch=copy_into(states))
    assert uninterrupted == train_uninterrupted("ema")[0]
    for state in states[:-1]:
        resumed, final = train(recipe, resume=state)
        assert resumed == uninterrupted
        assert_same_tensors(final.tensors, expected.tensors)


def test_on_epoch_is_given_the_tensors_that_are_trained_not_copies() -> None:
    network, addresses = make_network(), list[set[int]]()

    def record_addresses(state: TrainingState) -> None:
        tensors = {key: value for key, value in state.tensors.items() if not key.startswith("random.")}
        addresses.append({value.data_ptr() for value in tensors.values()})

    fit(network, make_data(), make_recipe(epochs=2), FIRST_CYCLE, seed=7, on_epoch=record_addresses)
    assert addresses[0] == addresses[1]
    assert {value.data_ptr() for value in network.state_dict().values()} <= addresses[0]


def test_snapshot_before_the_first_step_is_refused() -> None:
    refusal = r"train\.snapshots: found 16 steps before the end, but training takes only 15 steps"
    with pytest.raises(UserError, match=refusal):
        train(make_recipe(snapshots=[16]))


def ids_of_batches(recipe: Recipe, context: TrainingContext) -> list[list[int]]:
    """The ids of all batches in training: labeled and unlabeled ones alternate."""
    batches: list[list[int]] = []
    data = make_data()

    def take(ids: np.ndarray) -> np.ndarray:
        batches.append(ids.tolist())
        return data.take(ids)

    fit(make_network(), replace(data, take=take), recipe, context, seed=7)
    return batches


@pytest.mark.parametrize("is_first_cycle", [True, False])
def test_unlabeled_batch_is_repeated_only_in_the_first_cycle_and_if_configured(is_first_cycle: bool) -> None:
    context = TrainingContext(IMAGE_SHAPE, None if is_first_cycle else make_network())
    repeating = make_recipe(objectives=[{"name": "ema", "fixed_first_batch": True, "batch_size": 5}])
    unlabeled = ids_of_batches(repeating, context)[1::2]
    assert all(len(ids) == 5 for ids in unlabeled)
    assert all(ids == unlabeled[0] for ids in unlabeled) == is_first_cycle
    assert unlabeled[0] != sorted(unlabeled[0])  # of a shuffled pool, which may be sorted by class
    assert len({tuple(ids) for ids in ids_of_batches(make_recipe(), context)[1::2]}) == EPOCHS * STEPS


def test_unlabeled_batch_has_distinct_images_of_the_whole_pool() -> None:
    batches = ids_of_batches(make_recipe(epochs=15), FIRST_CYCLE)[1::2]
    assert [len(set(ids)) for ids in batches] == [8] * 15 * STEPS
    assert set().union(*batches) == set(range(25, 60))
    small_pool = ids_of_batches(make_recipe(objectives=[EMA | {"batch_size": 50}]), FIRST_CYCLE)[1]
    assert sorted(small_pool) == list(range(25, 60))


def test_horizon_of_the_average_is_a_share_of_the_steps() -> None:
    by_horizon = EMA | {"decay": None, "horizon": 0.2}
    assert EmaObjective(horizon=0.2).decay_over(EPOCHS * STEPS) == pytest.approx(1 - 1 / 3)
    same, other = ([EMA | {"decay": 1 - 1 / (0.2 * steps)}] for steps in (EPOCHS * STEPS, 100))
    averages = [train(make_recipe(objectives=objectives))[0] for objectives in ([by_horizon], same, other)]
    assert averages[0] == averages[1] != averages[2]


def test_objectives_share_the_unlabeled_batch_of_a_step() -> None:
    second_cycle = TrainingContext(IMAGE_SHAPE, make_network())
    recipe = make_recipe(objectives=[EMA, {"name": "cyclic"}, LL4AL])
    assert len(ids_of_batches(recipe, second_cycle)) == 2 * EPOCHS * STEPS


def test_one_pass_over_labeled_and_unlabeled_images_computes_the_same_as_two_without_batch_norm() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh()), nn.Linear(5, 3))
    networks = [copy.deepcopy(network), copy.deepcopy(network)]
    one_pass, two_passes = (
        TrainingRun(each, make_data(), make_recipe(augment={}), FIRST_CYCLE, seed=7) for each in networks
    )
    assert not one_pass.separate_passes
    two_passes.separate_passes = True
    for run in (one_pass, two_passes):
        run.train_epoch(0)
    for first, second in zip(*(each.parameters() for each in networks), strict=True):
        assert first.detach().numpy() == pytest.approx(second.detach().numpy(), abs=1e-5)


def test_networks_with_batch_norm_process_labeled_and_unlabeled_images_separately() -> None:
    assert TrainingRun(make_network(), make_data(), make_recipe(), FIRST_CYCLE, seed=7).separate_passes


@pytest.mark.parametrize(("persists", "cycles"), [(True, 2), (False, 1)])
def test_teacher_continues_from_the_previous_cycle_if_it_persists(
    workspace: Workspace, persists: bool, cycles: int
) -> None:
    workspace.change(**{"train.objectives": [{"name": "ema", "persists": persists}], "train.batch_size": 1000})
    for cycle in ("c1", "c2"):
        workspace.run("train", cycle)
    tensors, _ = read_tensors(workspace.path("train", "auxiliary", "c2"))
    assert int(tensors["objective.ema.average.n_averaged"]) == cycles * 3  # epochs, of one step each


def test_cyclic_objective_has_a_loss_from_the_second_cycle_on(workspace: Workspace) -> None:
    workspace.change(**{"train.objectives": [{"name": "cyclic", "weight": 1.0}]})
    losses = {}
    for cycle in ("c1", "c2"):
        workspace.run("train", cycle)
        curve = tables.read_csv(workspace.path("train", "training_curve", cycle), tables.TRAINING)
        losses[cycle] = curve["unsupervised_loss"].to_pylist()
    assert set(losses["c1"]) == {0.0}
    assert min(losses["c2"]) > 0


def test_second_head_of_ema_is_trained_and_resumed_exactly() -> None:
    objective = {"name": "ema", "heads": 2, "outputs": "logits", "reduce": "mean", "weight": 0.1}
    recipe, states, head = make_recipe(objectives=[objective]), list[TrainingState](), "objective.ema.second.weight"
    uninterrupted, expected = train(recipe, on_epoch=copy_into(states))
    resumed, final = train(recipe, resume=states[1])
    assert resumed == uninterrupted
    assert torch.equal(final.tensors[head], expected.tensors[head])
    assert not torch.equal(expected.tensors[head], states[0].tensors[head])


def test_adam_takes_the_step_of_torch_optim_adam() -> None:
    data, network, by_hand = make_data(), make_network(), make_network().train()
    recipe = make_recipe("none", epochs=1, batch_size=25, augment={}, **OPTIMIZERS["adam"])
    fit(network, data, recipe, FIRST_CYCLE, seed=7)
    torch.manual_seed(7)
    order = torch.randperm(25, generator=torch.Generator().manual_seed(7)).numpy()
    optimizer = torch.optim.Adam(by_hand.parameters(), 0.005, weight_decay=5e-4)
    inputs = data.normalize(torch.from_numpy(data.take(data.labeled_ids[order])))
    nn.functional.cross_entropy(by_hand(inputs), torch.from_numpy(data.labels[order].astype(np.int64))).backward()
    optimizer.step()
    pairs = zip(network.parameters(), by_hand.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_momentum_with_adam_is_refused() -> None:
    with pytest.raises(ValueError, match="0 with optimizer: adam, which has its own"):
        make_recipe(optimizer="adam")
