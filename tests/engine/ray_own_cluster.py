"""What happens on a Ray cluster that a stage starts, written to FOLDER/record.json; for test_ray_workers.py.

One process for all of it, because it takes Ray ten seconds to start: python -m tests.engine.ray_own_cluster FOLDER
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from codline.core.errors import CodlineError
from codline.engine import ray_cluster
from codline.engine.ray_workers import ATTEMPTS, compute_in_order, leave_cluster
from codline.engine.setting import ENGINE
from codline.runtime.process_lifetime import is_alive
from tests.engine import jobs
from tests.engine.namespaces import listeners
from tests.engine.test_local_workers import wait_until

SETUP = partial(jobs.mark_environment, "set up")


def compute(workers: int, job: Callable[[], Callable[[Any], Any]], items: list[Any]) -> list[Any]:
    return list(compute_in_order(workers, SETUP, job, items))


def sentence(workers: int, job: Callable[[], Callable[[Any], Any]], items: list[Any]) -> str:
    """The error of a pass."""
    try:
        return f"no error: {compute(workers, job, items)}"
    except CodlineError as error:
        return f"{error.exit_code}: {error}"


def items_taken(workers: int) -> list[int]:
    """For each result of a pass: how many items had been taken when the consumer got it. Breaks off."""
    taken, numbers = list[int](), list[int]()

    def endless() -> Iterator[int]:
        for item in count():
            taken.append(item)
            yield item

    with closing(compute_in_order(workers, SETUP, jobs.squares, endless())) as results:
        for _ in range(30):
            next(results)
            numbers.append(len(taken))
    return numbers


def job_of_missing_package() -> Callable[[], Callable[[Any], Any]]:
    """A function of a module that workers cannot import."""
    module = sys.modules["only_here"] = ModuleType("only_here")
    exec("def job(): pass", module.__dict__)
    job: Callable[[], Callable[[Any], Any]] = module.job
    return job


def main(folder: Path) -> None:
    os.environ[ENGINE] = "ray:2"
    ray_cluster.OBJECT_STORE_BYTES = 80_000_000  # less than one result
    os.chdir(folder)
    record: dict[str, Any] = {}
    record["squares"] = [compute(workers, jobs.squares, list(range(20))) for workers in (2, 1)]
    record["places"] = places = compute(2, jobs.places, list(range(8)))
    record["niceness"] = compute(1, jobs.niceness, [0])
    record["listeners"] = sorted(listeners())
    files = {"token": ray_cluster.token_file(), "directory": ray_cluster.temporary_directory(os.getpid())}
    record["modes"] = {name: oct(path.stat().st_mode & 0o777) for name, path in files.items()}
    record["taken"] = items_taken(2)
    wait_until(lambda: not any(is_alive(process) for process, _, _ in places))
    record["deaths"] = sentence(2, jobs.Death(folder, {3}, times=ATTEMPTS), list(range(12)))
    record["full disk"] = sentence(1, jobs.kilobytes, [100_000])
    record["package"] = sentence(1, job_of_missing_package(), [1])
    leave_cluster()
    record["directory is left"] = files["directory"].exists()
    (folder / "record.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
