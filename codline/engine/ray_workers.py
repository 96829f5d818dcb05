"""Ray workers: what local_workers.py does, on a Ray cluster, whose nodes may be other machines."""

import pickle
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from codline.core.errors import InfrastructureError, StorageError, UserError
from codline.engine.ordered_results import results_in_order
from codline.engine.ray_actor import PassActor, package_versions
from codline.engine.ray_cluster import connect_to_cluster, disconnect, first_line
from codline.engine.setting import EngineSetting, engine_setting

ATTEMPTS = 3  # to compute an item whose worker dies, and to start workers if none does
START_SECONDS = 120.0  # that a pass waits while no worker runs
POLL_SECONDS = 1.0

T = TypeVar("T")
R = TypeVar("R")

_team: "RayTeam | None" = None  # of the stage that this process runs


def compute_in_order(
    workers: int, setup: Callable[[], object], job: Callable[[], Callable[[T], R]], items: Iterable[T]
) -> Generator[R]:
    """Yield `job()(item)` for all items, in their order, computed by this number of Ray actors.

    Setup and job are sent to each node once. A pass begins as soon as one worker runs; the others join when they do.
    They stay for the next pass of the stage, unless this one is broken off: importing torch takes them seconds.
    """
    global _team
    _team = team = _team or RayTeam(engine_setting())
    team.begin_pass(workers, pickle.dumps(setup), pickle.dumps(job))
    yield from results_in_order(workers, team.compute, items, stop=end_workers)


def leave_cluster() -> None:
    """For the end of a stage. Nothing happens if it has not used Ray."""
    end_workers()
    disconnect()


def end_workers() -> None:
    """Stop the workers of this process, and start no others for a pass that still runs."""
    global _team
    if _team is not None:
        _team.end()
        _team = None


class RayTeam:
    """The workers of a stage. An actor that dies, alone or with its node, is replaced wherever there is room."""

    def __init__(self, setting: EngineSetting) -> None:
        self.ray, self.place = connect_to_cluster(setting), setting.address or "on this machine"
        actor_class = self.ray.remote(num_cpus=setting.cpus, num_gpus=setting.gpus)(PassActor)
        self.new_actor = partial(actor_class.remote, str(Path.cwd()))
        self.lock, self.is_ended = threading.Lock(), False
        self.actors, self.running = set[Any](), set[Any]()  # all; those that have started
        self.failed_starts = self.number = 0
        self.messages: list[Any] = []
        self.idle = queue.SimpleQueue[tuple[Any, Future[Any] | None]]()  # with the future of one that has just started

    def begin_pass(self, workers: int, setup: bytes, job: bytes) -> None:
        self.number, self.messages = self.number + 1, [self.ray.put(setup), self.ray.put(job)]
        for _ in range(workers - len(self.actors)):
            self.start()

    def start(self) -> None:
        with self.lock:
            if self.is_ended:
                return
            actor = self.new_actor()
            self.actors.add(actor)
        actor.environment.remote().future().add_done_callback(lambda outcome: self.idle.put((actor, outcome)))

    def compute(self, item: bytes) -> bytes:
        """The answer to an item, from whichever worker is free first."""
        errors = self.ray.exceptions
        for _ in range(ATTEMPTS):
            actor = self.take_idle()
            try:
                answer: bytes = self.ray.get(actor.answer.remote(self.number, self.messages, item))
            except errors.OutOfDiskError as error:
                found = f"the disk of a node of the Ray cluster {self.place} is full"
                raise StorageError(f"{found}; free some space and run it again") from error
            except (errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError) as error:
                self.replace(actor)
                if "low on memory" in str(error):  # a new one would be killed again
                    raise MemoryError from None
            else:
                self.idle.put((actor, None))
                return answer
        found = f"a Ray worker of the pass died {ATTEMPTS} times on the same images"
        raise InfrastructureError(f"{found}; run it again, with fewer workers or --engine local if memory is short")

    def take_idle(self) -> Any:
        """An actor that has started and has nothing to do."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ended:
            try:
                actor, outcome = self.idle.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if self.running:  # all are busy
                    deadline = time.monotonic() + START_SECONDS
                elif time.monotonic() > deadline:
                    raise InfrastructureError(self.no_worker("is busy")) from None
            else:
                if outcome is None or self.has_started(actor, outcome):
                    return actor
        raise InfrastructureError("the pass was stopped")

    def has_started(self, actor: Any, outcome: Future[Any]) -> bool:
        """Otherwise it is replaced, a few times. Refuses a worker with other packages than the stage has."""
        if (error := outcome.exception()) is not None:
            self.failed_starts += 1
            if self.failed_starts < ATTEMPTS:  # perhaps on another node
                self.replace(actor)
            elif not self.running:
                raise InfrastructureError(self.no_worker(f"could not start one: {first_line(error)}"))
            return False
        node, versions = outcome.result()
        refuse_other_packages(node, versions)
        self.running.add(actor)
        return True

    def no_worker(self, why: str) -> str:
        free = self.ray.available_resources()
        found = f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs are free"
        return f"no worker of the pass runs: the Ray cluster {self.place} {why}; {found}"

    def replace(self, actor: Any) -> None:
        self.running.discard(actor)
        self.actors.discard(actor)
        self.ray.kill(actor)
        self.start()

    def end(self) -> None:
        with self.lock:
            self.is_ended = True
        for actor in list(self.actors):
            self.ray.kill(actor)


def refuse_other_packages(node: str, versions: dict[str, str | None]) -> None:
    """Another version of torch may compute other bytes."""
    for name, ours in package_versions().items():
        if (theirs := versions[name]) != ours:
            found = f"the package {name} {theirs}" if theirs else f"no package {name}"
            raise UserError(f"--engine ray: the worker on {node} has {found}; expected {ours}, which this process has")
