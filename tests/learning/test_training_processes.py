"""Training in several processes: the same bytes again and after a kill, errors and deaths of processes, sockets."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed

from codline.core.errors import DataError, InfrastructureError, TrainingError, UserError
from codline.core.params import Compute, validate
from codline.learning import training_processes
from codline.learning.fit import TrainingState, fit
from codline.learning.rank_group import RankGroup
from codline.learning.recipe import Recipe
from codline.learning.training_processes import Fit, open_fit
from codline.runtime.process_lifetime import is_alive
from tests.learning.test_fit import (
    FIRST_CYCLE,
    OBJECTIVES,
    KilledError,
    copy_into,
    make_data,
    make_network,
    make_recipe,
)
from tests.learning.watched_images import WatchedImages, die, fail, run_out_of_memory

CPU = Compute(device="cpu")
LOOPBACK = "0100007F"  # 127.0.0.1, as in /proc/net/tcp
LISTENING = "0A"


class Teams:
    """Opens a fit() in some processes, and keeps them for the next test; a process is in one group at a time."""

    def __init__(self) -> None:
        self.stack, self.opened = ExitStack(), dict[int, Fit]()

    def fit_in(self, processes: int) -> Fit:
        if processes not in self.opened:
            self.close()
            self.opened[processes] = self.stack.enter_context(open_fit(processes, CPU))
        return self.opened[processes]

    def close(self) -> None:
        self.opened.clear()
        self.stack.close()


@pytest.fixture(scope="module")
def teams(fork_server_environment: dict[str, str]) -> Iterator[Teams]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fork_server_environment.items():
            patch.setenv(name, value)
        teams = Teams()
        yield teams
        teams.close()


def train(
    train_in_processes: Fit, recipe: Recipe, resume: TrainingState | None = None
) -> tuple[dict[str, Tensor], list[TrainingState]]:
    """All tensors of the final state, but torch's random state, which every epoch sets; and a copy of all states."""
    states = list[TrainingState]()
    final = train_in_processes(
        make_network(), make_data(), recipe, FIRST_CYCLE, seed=7, resume=resume, on_epoch=copy_into(states)
    )
    return {key: value for key, value in final.tensors.items() if key != "random.torch"}, states


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize(("processes", "names"), [*((2, each) for each in OBJECTIVES), (3, "ema and ll4al")])
def test_training_gives_the_same_bytes_again_and_resumed_after_an_epoch(
    teams: Teams, processes: int, names: str
) -> None:
    """With batch norm and dropout. A sum of three gradients depends on the order in which they are added up."""
    in_processes, recipe = teams.fit_in(processes), make_recipe(names, processes=processes, batch_size=9)
    expected, states = train(in_processes, recipe)
    assert_same(train(in_processes, recipe)[0], expected)
    for state in (states[0], states[2]):
        torch.manual_seed(12345)  # random draws between a kill and the resume must not matter
        assert_same(train(in_processes, recipe, state)[0], expected)
    in_one, _ = train(fit, make_recipe(names, batch_size=9))
    assert not torch.equal(in_one["network.head.weight"], expected["network.head.weight"])


def test_one_process_trains_with_fit_itself_and_without_a_group(teams: Teams) -> None:
    teams.close()
    with open_fit(1, CPU) as opened:
        assert opened is fit
        assert not distributed.is_initialized()


def test_random_layers_draw_other_numbers_in_every_process_and_epoch() -> None:
    drawn = set()
    for rank in range(2):
        for epoch in range(2):
            RankGroup.start_epoch(SimpleNamespace(rank=rank), 7, epoch)  # type: ignore[arg-type]
            drawn.add(float(torch.rand(())))
    assert len(drawn) == 4


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., WatchedImages]:
    """Images of make_data(), with something that happens in the other process while it trains."""
    pixels = make_data().take(np.arange(60))
    return lambda event=None: WatchedImages(pixels, tmp_path, os.getpid(), event)


def train_on(
    teams: Teams, images: WatchedImages, on_epoch: Callable[[TrainingState], None] = lambda _: None, **changes: Any
) -> TrainingState:
    recipe, data = make_recipe(processes=2, **changes), replace(make_data(), take=images)
    return teams.fit_in(2)(make_network(), data, recipe, FIRST_CYCLE, seed=7, on_epoch=on_epoch)


def test_processes_listen_on_the_loopback_address_alone(teams: Teams, watched: Callable[..., WatchedImages]) -> None:
    images = watched()
    train_on(teams, images)
    (other,) = images.others()
    assert listening_addresses(os.getpid()) == listening_addresses(other) == {LOOPBACK}


def listening_addresses(process: int) -> set[str]:
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(descriptor.readlink()))
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    return {row[1].partition(":")[0] for row in rows if row[3] == LISTENING and f"socket:[{row[9]}]" in sockets}


@pytest.mark.parametrize(
    ("event", "error", "sentence"),
    [
        (die, InfrastructureError, "^a process of the training died; run it again to go on from the last checkpoint$"),
        (fail, DataError, "^images.arrow: has no row with id 7$"),
        (run_out_of_memory, MemoryError, "raise MemoryError"),
    ],
)
def test_death_or_error_of_a_process_ends_all_within_seconds(
    teams: Teams,
    watched: Callable[..., WatchedImages],
    event: Callable[[], None],
    error: type[Exception],
    sentence: str,
) -> None:
    images = watched(event)
    try:
        with pytest.raises(error, match=sentence):
            train_on(teams, images)
        moments = [path.stat().st_mtime for path in images.folder.iterdir()]
        assert time.time() - max(moments) < 30
    finally:
        teams.close()
    wait_for_end(images.others())
    assert not distributed.is_initialized()


def wait_for_end(processes: list[int]) -> None:
    """One that was forked ends when the fork server's client has been killed."""
    deadline = time.monotonic() + 30
    while any(is_alive(process) for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("error", [DataError("pool.parquet changed"), KeyboardInterrupt()], ids=type)
def test_error_of_the_first_process_ends_all(
    teams: Teams, watched: Callable[..., WatchedImages], error: BaseException
) -> None:
    def fail_after_an_epoch(_: TrainingState) -> None:
        raise error

    images = watched()
    try:
        with pytest.raises(type(error)):
            train_on(teams, images, fail_after_an_epoch)
    finally:
        teams.close()
    assert images.others()
    wait_for_end(images.others())


def test_process_that_waits_for_one_that_has_died_and_does_not_notice_is_ended(
    teams: Teams, watched: Callable[..., WatchedImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU; here rank 0 sleeps instead."""
    codes, images = list[int](), watched(die)
    monkeypatch.setattr(training_processes, "SECONDS_TO_NOTICE", 0.5)
    monkeypatch.setattr(training_processes.os, "_exit", codes.append)

    def wait(_: TrainingState) -> None:
        while not codes:
            time.sleep(0.02)
        raise KilledError

    try:
        with pytest.raises(KilledError):
            train_on(teams, images, wait)
    finally:
        teams.close()
    assert codes == [InfrastructureError.exit_code]


def test_training_that_diverges_stops_in_all_processes(teams: Teams) -> None:
    recipe = make_recipe("none", processes=2, epochs=40, learning_rate=1e7, weight_decay=1.0)
    with pytest.raises(TrainingError, match=r"^training diverged in epoch \d+ of 40: the loss is "):
        train(teams.fit_in(2), recipe)
    teams.close()


@pytest.mark.parametrize(
    ("processes", "sentence"),
    [
        (0, "train.processes: found 0, expected at least 1"),
        (-1, "train.processes: found -1, expected at least 1"),
        (1.5, "train.processes: found 1.5, expected a whole number"),
        (5, "train.processes: found 5, expected at most 4: two images of a batch of 8 for each process"),
    ],
)
def test_number_of_processes_that_a_batch_does_not_allow_is_refused(processes: float, sentence: str) -> None:
    section = make_recipe().model_dump(mode="json") | {"processes": processes}
    with pytest.raises(UserError, match=f"^params.yaml: {sentence}"):
        validate(section, Recipe, "train")


def test_mps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_processes, "select_device", lambda _: torch.device("mps"))
    sentence = r"train\.processes: found 2, but MPS trains in one process; expected 1$"
    with pytest.raises(UserError, match=sentence), open_fit(2, CPU):
        pass
