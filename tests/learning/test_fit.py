"""Training is exact: the same bytes in one go, resumed after a kill, or in another process."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from codline.core.errors import TrainingError, UserError
from codline.data import tables
from codline.learning.checkpoints import Checkpoint
from codline.learning.fit import Examples, Progress, Recipe, Run, fit
from codline.learning.inference import Normalize
from codline.learning.model_file import read_tensors
from codline.models.base import Network
from codline.objectives.base import Beside
from tests.workspace import Workspace

EPOCHS = 5
OBJECTIVES: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "ema": {"name": "ema", "weight": 0.5, "decay": 0.9},
    "ll4al": {"name": "ll4al", "width": 4},
}
SOME = Progress(3, {"network.weight": torch.ones(100)}, [{"epoch": 3}])
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def recipe(kind: str = "ema", **changes: Any) -> Recipe:
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
        "objective": OBJECTIVES[kind],
    }
    return Recipe.model_validate(settings | changes)


def network() -> Network:
    """With all that carries state: batch-norm statistics, and dropout, which draws from torch's own stream."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        return Network(body, nn.Linear(4 * 4 * 4, 3), stages=("1", "2"))


def examples() -> Examples:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), np.uint8)
    labels = np.random.default_rng(1).integers(0, 3, 25, np.int32)
    return Examples(
        pixels.__getitem__, np.arange(25), labels, np.arange(25, 60), Normalize([0.5], [0.3], torch.device("cpu"))
    )


def trained(
    how: Recipe, resume: Progress | None = None, on_epoch: Callable[[Progress], None] = lambda _: None
) -> tuple[bytes, Progress]:
    """Every weight as bytes, and the progress at the end."""
    net = network()
    done = fit(net, examples(), how, seed=7, resume=resume, on_epoch=on_epoch)
    return b"".join(value.numpy().tobytes() for value in net.state_dict().values()), done


def remembering(epochs: list[Progress]) -> Callable[[Progress], None]:
    return lambda now: epochs.append(copy.deepcopy(now))


@cache
def trained_in_one_go(objective: str) -> tuple[bytes, Progress]:
    return trained(recipe(objective))


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checkpoint]:
    """The checkpoint of a training with one input file and these settings."""
    monkeypatch.setenv("CODLINE_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "labeled").write_text("labels")
    return lambda **settings: Checkpoint([tmp_path / "labeled"], **settings)


class KilledError(Exception):
    pass


ADAM: dict[str, Any] = {"optimizer": "adam", "momentum": 0.0, "learning_rate": 0.005}


@pytest.mark.parametrize("changes", [{}, ADAM], ids=["sgd", "adam"])
@each_objective
@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_killed_after_any_epoch_and_resumed_gives_the_same_bytes(
    checkpoint: Callable[..., Checkpoint], objective: str, epoch: int, changes: dict[str, Any]
) -> None:
    how = recipe(objective, **changes)
    unbroken, whole = trained(how)
    saved = checkpoint(params=how.model_dump())

    def killed(progress: Progress) -> None:
        saved.write(progress)
        if progress.epoch == epoch:
            raise KilledError

    with pytest.raises(KilledError):
        trained(how, on_epoch=killed)
    torch.manual_seed(12345)  # whatever happened in between must not matter
    resume = checkpoint(params=how.model_dump()).read()
    assert resume is not None
    assert resume.epoch == epoch
    resumed, rest = trained(how, resume=resume)
    assert resumed == unbroken
    assert rest.curve == whole.curve
    assert rest.tensors.keys() == whole.tensors.keys()
    assert all(torch.equal(rest.tensors[key], whole.tensors[key]) for key in whole.tensors)


@each_objective
def test_the_same_seed_trains_to_the_same_bytes(objective: str) -> None:
    assert trained(recipe(objective))[0] == trained(recipe(objective))[0]


def test_every_part_of_the_recipe_matters() -> None:
    plain = trained(recipe())[0]
    changes: list[dict[str, Any]] = [
        {"batch_size": 9},
        {"learning_rate": 0.06},
        {"momentum": 0.8},
        {"weight_decay": 0.0},
        {"decay_at": 0.5},
        {"decay_by": 0.5},
        {"augment": {"crop": 0, "flip": True}},
        {"augment": {"crop": 1, "flip": False}},
        {"objective": OBJECTIVES["none"]},
        {"objective": OBJECTIVES["ema"] | {"decay": 0.1}},
    ]
    assert len({plain, *(trained(recipe(**change))[0] for change in changes)}) == len(changes) + 1


def test_the_learning_rate_falls_after_four_fifths_of_the_epochs() -> None:
    _, done = trained(recipe(epochs=10))
    assert [row["learning_rate"] for row in done.curve] == pytest.approx([0.05] * 8 + [0.005] * 2)
    assert [row["epoch"] for row in done.curve] == list(range(1, 11))


def test_the_task_loss_falls_and_the_unsupervised_one_is_counted() -> None:
    with_ema, without = (trained(recipe(name, epochs=20, augment={}))[1].curve for name in ("ema", "none"))
    assert with_ema[-1]["task_loss"] < with_ema[0]["task_loss"] / 2
    assert with_ema[0]["unsupervised_loss"] > 0
    assert all(row["unsupervised_loss"] == 0 for row in without)


def test_labelled_images_alone_are_enough() -> None:
    net = network()
    few = examples()
    alone = Examples(few.take, few.labeled, few.labels, np.empty(0, np.int64), few.normalize)
    assert fit(net, alone, recipe("ema"), seed=7, resume=None, on_epoch=lambda _: None).epoch == EPOCHS


def test_a_loss_that_is_not_a_number_stops_training_and_keeps_the_last_good_checkpoint(
    checkpoint: Callable[..., Checkpoint],
) -> None:
    saved = checkpoint(params="diverging")
    how = recipe("none", epochs=40, learning_rate=1e7, weight_decay=1.0, batch_size=25)
    with pytest.raises(TrainingError) as stopped:
        trained(how, on_epoch=saved.write)
    kept = saved.read()
    assert kept is not None
    assert 1 <= kept.epoch < how.epochs
    assert str(stopped.value).startswith(f"training diverged in epoch {kept.epoch + 1} of 40: the loss is ")
    assert str(stopped.value).endswith("; lower train.learning_rate (now 10000000.0)")
    assert stopped.value.exit_code == 4
    assert all(value.isfinite().all() for key, value in kept.tensors.items() if key.startswith("network."))


def test_weights_that_break_in_the_last_step_are_not_kept_either(checkpoint: Callable[..., Checkpoint]) -> None:
    saved = checkpoint(params="one step")
    with pytest.raises(TrainingError):
        trained(recipe("none", epochs=1, batch_size=25, learning_rate=1e38, weight_decay=1e10), on_epoch=saved.write)
    assert saved.read() is None


@pytest.mark.parametrize(
    "change", [{"params": {"epochs": 6}}, {"seed": 1}, {"cycle": "c2"}, {"compute": {"threads": 2}}]
)
def test_a_checkpoint_of_other_settings_is_never_resumed(
    checkpoint: Callable[..., Checkpoint], change: dict[str, Any]
) -> None:
    settings = {"params": {"epochs": 5}, "seed": 0, "cycle": "c1", "compute": {"threads": 1}}
    checkpoint(**settings).write(SOME)
    assert checkpoint(**settings).read() is not None
    assert checkpoint(**settings | change).read() is None


def test_a_checkpoint_of_other_inputs_is_never_resumed(checkpoint: Callable[..., Checkpoint], tmp_path: Path) -> None:
    checkpoint(seed=0).write(SOME)
    (tmp_path / "labeled").write_text("other labels")
    assert checkpoint(seed=0).read() is None


def test_a_broken_checkpoint_is_as_good_as_none(checkpoint: Callable[..., Checkpoint]) -> None:
    saved = checkpoint(seed=0)
    saved.write(SOME)
    saved.path.write_bytes(saved.path.read_bytes()[:-100])
    assert saved.read() is None


def test_only_the_checkpoints_of_the_last_trainings_are_kept(
    checkpoint: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    for seed in range(6):
        checkpoint(seed=seed).write(SOME)
    assert len(list((tmp_path / "scratch" / "checkpoints").iterdir())) == 3
    assert checkpoint(seed=5).read() is not None


def test_train_killed_in_the_middle_and_run_again_writes_the_same_bytes(workspace: Workspace) -> None:
    outs = workspace.outputs("train", "c2")
    expected = [path.read_bytes() for path in outs]
    with pytest.MonkeyPatch.context() as patch:
        write = Checkpoint.write

        def killed(self: Checkpoint, progress: Progress) -> None:
            write(self, progress)
            if progress.epoch == 2:
                raise KilledError

        patch.setattr(Checkpoint, "write", killed)
        for path in outs:
            path.unlink()
        with pytest.raises(KilledError):
            workspace.run("train", "c2")
    assert not any(path.exists() for path in outs)
    (kept,) = Path(".codline/checkpoints").glob("*/*")
    assert read_tensors(kept)[1]["epoch"] == 2
    workspace.run("train", "c2")
    assert [path.read_bytes() for path in outs] == expected


@pytest.mark.slow
def test_training_in_another_process_gives_the_same_bytes(workspace: Workspace) -> None:
    outs = workspace.outputs("train", "c1")
    expected = [path.read_bytes() for path in outs]
    for path in outs:
        path.unlink()
    assert workspace.command("train", "c1").returncode == 0
    assert [path.read_bytes() for path in outs] == expected


STEPS = 3  # of an epoch: 25 images in batches of 8, the last image joining its neighbours


def test_a_snapshot_is_the_network_as_it_was_so_many_steps_before_the_end() -> None:
    epochs: list[Progress] = []
    _, done = trained(recipe(snapshots=[STEPS, 2 * STEPS, EPOCHS * STEPS, 1]), on_epoch=remembering(epochs))
    for back in (1, 2):
        then = epochs[EPOCHS - 1 - back].part("network")
        assert all(torch.equal(value, then[key]) for key, value in done.part(f"snapshot.{back * STEPS}").items())
    start = done.part(f"snapshot.{EPOCHS * STEPS}")
    assert all(torch.equal(value, start[key]) for key, value in network().state_dict().items())
    assert done.part("snapshot.1").keys() == start.keys()


def test_snapshots_are_the_same_after_a_kill_and_change_nothing_else() -> None:
    how, epochs = recipe(snapshots=[2, 4, 11]), list[Progress]()
    whole, done = trained(how, on_epoch=remembering(epochs))
    assert whole == trained_in_one_go("ema")[0]
    for kept in epochs[:-1]:
        again, resumed = trained(how, resume=kept)
        assert again == whole
        assert resumed.tensors.keys() == done.tensors.keys()
        assert all(
            torch.equal(value, done.tensors[key])
            for key, value in resumed.tensors.items()
            if key.startswith("snapshot.")
        )


def test_an_epoch_is_handed_the_tensors_that_are_trained_and_no_copies() -> None:
    net, places = network(), list[set[int]]()

    def look(progress: Progress) -> None:
        places.append({value.data_ptr() for key, value in progress.tensors.items() if not key.startswith("random.")})

    fit(net, examples(), recipe(epochs=2), seed=7, resume=None, on_epoch=look)
    assert places[0] == places[1]
    assert {value.data_ptr() for value in net.state_dict().values()} <= places[0]


def test_a_snapshot_before_the_beginning_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"train\.snapshots: found 16 steps before the end, but training takes only 15 steps"
    ):
        trained(recipe(snapshots=[16]))


def asked_for(how: Recipe, beside: Beside) -> list[list[int]]:
    """The ids that training took, step by step: labelled and unlabelled in turn."""
    ids: list[list[int]] = []
    known = examples()

    def take(some: np.ndarray) -> np.ndarray:
        ids.append(some.tolist())
        return known.take(some)

    fit(network(), replace(known, take=take), how, seed=7, resume=None, on_epoch=lambda _: None, beside=beside)
    return ids


@pytest.mark.parametrize("first", [True, False])
def test_the_first_cycle_repeats_its_unlabelled_images_only_where_that_fault_is_asked_for(first: bool) -> None:
    beside = Beside(None if first else network())
    fault = recipe(objective={"name": "ema", "fixed_first_batch": True, "batch_size": 5})
    unlabeled = asked_for(fault, beside)[1::2]
    assert all(len(ids) == 5 for ids in unlabeled)
    assert all(ids == [25, 26, 27, 28, 29] for ids in unlabeled) == first
    assert len({tuple(ids) for ids in asked_for(recipe(), beside)[1::2]}) == EPOCHS * STEPS


def test_one_pass_for_both_is_the_same_arithmetic_where_nothing_is_normalised_over_the_batch() -> None:
    plain = Network(nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh()), nn.Linear(5, 3))
    nets = [copy.deepcopy(plain), copy.deepcopy(plain)]
    runs = [Run(net, examples(), recipe(augment={}), 7, Beside()) for net in nets]
    assert not runs[0].apart
    runs[1].apart = True
    for run in runs:
        run.epoch(0)
    for together, apart in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert together.detach().numpy() == pytest.approx(apart.detach().numpy(), abs=1e-5)
    assert Run(network(), examples(), recipe(), 7, Beside()).apart


@pytest.mark.parametrize(("persists", "steps"), [(True, 2), (False, 1)])
def test_the_average_goes_on_from_cycle_to_cycle_where_it_persists(
    workspace: Workspace, persists: bool, steps: int
) -> None:
    workspace.change(**{"train.objective": {"name": "ema", "persists": persists}, "train.batch_size": 1000})
    for cycle in ("c1", "c2"):
        workspace.run("train", cycle)
    tensors, _ = read_tensors(workspace.path("train", "auxiliary", "c2"))
    assert int(tensors["companion.average.n_averaged"]) == steps * 3  # epochs


def test_the_cyclic_objective_trains_from_the_second_cycle_on(workspace: Workspace) -> None:
    workspace.change(**{"train.objective": {"name": "cyclic", "weight": 1.0}})
    losses = {}
    for cycle in ("c1", "c2"):
        workspace.run("train", cycle)
        losses[cycle] = tables.read_csv(workspace.path("train", "curve", cycle), tables.TRAINING)[
            "unsupervised_loss"
        ].to_pylist()
    assert set(losses["c1"]) == {0.0}
    assert min(losses["c2"]) > 0


def test_two_heads_are_trained_killed_and_resumed_exactly() -> None:
    how, epochs = (
        recipe(objective={"name": "ema", "heads": 2, "outputs": "logits", "reduce": "mean", "weight": 0.1}),
        list[Progress](),
    )
    whole, done = trained(how, on_epoch=remembering(epochs))
    again, resumed = trained(how, resume=epochs[1])
    assert again == whole
    assert torch.equal(resumed.tensors["companion.second.weight"], done.tensors["companion.second.weight"])
    assert not torch.equal(done.tensors["companion.second.weight"], epochs[0].tensors["companion.second.weight"])


def test_adam_steps_as_torchs_own_does() -> None:
    how, known, net = recipe("none", epochs=1, batch_size=25, augment={}, **ADAM), examples(), network()
    fit(net, known, how, seed=7, resume=None, on_epoch=lambda _: None)
    by_hand = network().train()
    torch.manual_seed(7)
    order = torch.randperm(25, generator=torch.Generator().manual_seed(7)).numpy()
    optimizer = torch.optim.Adam(by_hand.parameters(), 0.005, weight_decay=5e-4)
    inputs = known.normalize(torch.from_numpy(known.take(known.labeled[order])))
    nn.functional.cross_entropy(by_hand(inputs), torch.from_numpy(known.labels[order].astype(np.int64))).backward()
    optimizer.step()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(net.parameters(), by_hand.parameters(), strict=True))


def test_a_momentum_beside_adam_is_refused() -> None:
    with pytest.raises(ValueError, match="0 beside optimizer: adam, which has its own"):
        recipe(optimizer="adam")
