"""Worker processes: results in order, bounded memory, deaths and errors of workers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from codline.core.errors import CodlineError, DataError, InfrastructureError, disk_error
from codline.engine.local_workers import ATTEMPTS, compute_in_order
from codline.engine.ordered_results import ITEMS_PER_WORKER
from codline.runtime.process_lifetime import is_alive
from tests.engine import jobs
from tests.workspace import REPOSITORY

NO_SETUP = partial(jobs.mark_environment, "")
NAPPING = """
import sys
from pathlib import Path
from codline.engine.local_workers import compute_in_order
from tests.engine import jobs
list(compute_in_order(2, jobs.squares, jobs.long_naps, map(Path, sys.argv[1:])))
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200  # the fork server may still be importing torch
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def compute(workers: int, job: Callable[[], Callable[[Any], Any]], items: list[Any]) -> list[Any]:
    return list(compute_in_order(workers, NO_SETUP, job, items))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert compute(workers, jobs.squares, list(range(20))) == [item * item for item in range(20)]


def test_results_larger_than_a_pipe_holds_come_whole() -> None:
    assert [len(result) for result in compute(2, jobs.kilobytes, [0, 5000, 1, 3000])] == [0, 5_000_000, 1000, 3_000_000]


def test_items_are_computed_by_other_processes_in_this_directory_after_the_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = list(compute_in_order(2, partial(jobs.mark_environment, "set up"), jobs.places, range(8)))
    processes = {process for process, _, _ in results}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2
    assert {tuple(result[1:]) for result in results} == {(str(tmp_path), "set up")}


def test_consumer_that_stops_ends_the_workers() -> None:
    with closing(compute_in_order(2, NO_SETUP, jobs.places, count())) as results:
        processes = {process for process, _, _ in islice(results, 6)}
        assert all(is_alive(process) for process in processes)
    assert not any(is_alive(process) for process in processes)


@pytest.mark.parametrize("is_forked", [False, True])
def test_workers_end_with_a_stage_that_is_killed(
    tmp_path: Path, fork_server_environment: dict[str, str], is_forked: bool
) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)} | (fork_server_environment if is_forked else {})
    with subprocess.Popen([sys.executable, "-c", NAPPING, *map(str, files)], env=environment, cwd=tmp_path) as stage:
        try:
            wait_until(lambda: all(file.exists() and file.read_text() for file in files))
            processes = [int(file.read_text()) for file in files]
            assert all(is_alive(process) for process in processes)
        finally:
            stage.kill()
    wait_until(lambda: not any(is_alive(process) for process in processes))


def test_items_are_taken_only_as_far_ahead_as_two_per_worker() -> None:
    taken = list[int]()

    def endless() -> Iterator[int]:
        for item in count():
            taken.append(item)
            yield item

    with closing(compute_in_order(2, NO_SETUP, jobs.squares, endless())) as results:
        for consumed in range(1, 30):
            next(results)
            assert len(taken) <= consumed + ITEMS_PER_WORKER * 2


def test_item_whose_worker_is_killed_is_computed_by_another(tmp_path: Path) -> None:
    job = jobs.Death(tmp_path, {0, 7, 8}, times=ATTEMPTS - 1)
    assert compute(2, job, list(range(12))) == [item * item for item in range(12)]
    assert len(list(tmp_path.iterdir())) == 3 * (ATTEMPTS - 1)


def test_worker_that_is_forked_from_the_fork_server_is_replaced_too(
    tmp_path: Path, fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fork_server_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert compute(2, jobs.Death(tmp_path, {2}, times=1), [1, 2, 3, 4]) == [1, 4, 9, 16]
    assert {directory for _, directory, _ in compute(2, jobs.places, [0, 1])} == {str(tmp_path)}


def test_item_that_kills_three_workers_ends_the_pass_with_exit_code_7(tmp_path: Path) -> None:
    results = compute_in_order(2, NO_SETUP, jobs.Death(tmp_path, {3}, times=ATTEMPTS), range(12))
    assert list(islice(results, 3)) == [0, 1, 4]
    with pytest.raises(
        InfrastructureError, match=r"^a worker process of the pass died 3 times on the same images; run"
    ):
        next(results)
    assert InfrastructureError.exit_code == 7


def test_error_of_a_worker_is_raised_where_its_result_would_come() -> None:
    results = compute_in_order(2, NO_SETUP, jobs.failures, ["data"] * 3)
    with pytest.raises(DataError, match=r"^images/00000\.arrow: has no row with id 7$"):
        next(results)


def test_causes_of_an_error_of_a_worker_are_known() -> None:
    with pytest.raises(RuntimeError, match="cannot write") as raised:
        compute(1, jobs.failures, ["disk"])
    known = disk_error(raised.value)
    assert known is not None
    assert str(known).startswith("file: cannot be written: No space left on device")


def test_unexpected_error_of_a_worker_comes_with_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError, match='raise ZeroDivisionError\\("division by zero"\\)'):
        compute(1, jobs.failures, ["other"])
    with pytest.raises(CodlineError, match=r"(?s)^unexpected Unpicklable: .*raise Unpicklable"):
        compute(1, jobs.failures, ["not picklable"])
