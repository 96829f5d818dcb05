"""Training in several processes: this one is rank 0 and starts the others, which call fit() with the same arguments.

They end with this process, whatever ends it, and all of them end as soon as one dies.
"""

import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import distributed

from codline.core.errors import CodlineError, InfrastructureError, UserError
from codline.core.params import Compute
from codline.data.image_store import open_image_store
from codline.engine.job_answers import unpack_answer
from codline.engine.local_workers import PassWorker
from codline.learning.compute import configure, select_device
from codline.learning.fit import TrainingState, fit
from codline.learning.inference import TakeImages
from codline.learning.rank_group import RankGroup
from codline.runtime import out_of_memory
from codline.runtime.gpu_lock import VISIBLE, held_gpus

Fit = Callable[..., TrainingState]  # called as fit()
FitArguments = tuple[tuple[Any, ...], dict[str, Any]]
# After another process has failed: then rank 0, which may wait for it on a GPU and notice nothing, is ended too.
SECONDS_TO_NOTICE = 30.0
DIED = "a process of the training died; run it again to go on from the last checkpoint"


@dataclass(frozen=True)
class ImagesAtPath:
    """The images of a store, as a function of ids. Each process that it is sent to opens the store by itself."""

    path: Path

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        return self.take(ids)

    @cached_property
    def take(self) -> TakeImages:
        return open_image_store(self.path).take

    def __reduce__(self) -> tuple[type["ImagesAtPath"], tuple[Path]]:
        return ImagesAtPath, (self.path,)


@contextmanager
def open_fit(processes: int, compute: Compute) -> Iterator[Fit]:
    """Yield fit(), or a function that is called like it and trains in this number of processes."""
    if processes == 1:
        yield fit
        return
    device = select_device(compute.device)
    if device.type == "mps":
        raise UserError(f"params.yaml: train.processes: found {processes}, but MPS trains in one process; expected 1")
    with tempfile.TemporaryDirectory(prefix="codline-training-") as folder:
        store = Path(folder, "store")
        join_group = partial(RankGroup, store, 0, processes, device)
        job = partial(serve_rank, store, processes, compute)
        team = TrainingTeam(join_group, [PassWorker(each) for each in rank_messages(processes, compute, job)])
        try:
            team.start()
            yield team.fit
        finally:
            team.end()


def rank_messages(processes: int, compute: Compute, job: Callable[[int], object]) -> list[tuple[bytes, bytes]]:
    """What each of the other processes does before its first training, on a GPU of its own if there are any."""
    gpus = held_gpus() or [""] * processes
    return [
        (pickle.dumps(partial(configure_rank, compute, gpus[rank])), pickle.dumps(partial(job, rank)))
        for rank in range(1, processes)
    ]


def configure_rank(compute: Compute, gpu: str) -> None:
    if gpu:
        os.environ[VISIBLE] = gpu
    configure(compute)


def serve_rank(store: Path, processes: int, compute: Compute, rank: int) -> Callable[[FitArguments | None], None]:
    """In another process: the function that takes part in one training after the other; None: in none yet."""
    join_group = cache(lambda: RankGroup(store, rank, processes, select_device(compute.device)))

    def train(arguments_of_fit: FitArguments | None) -> None:
        if arguments_of_fit is not None:
            arguments, options = arguments_of_fit
            fit(*arguments, **options, group=join_group())

    return train


class TrainingTeam:
    """The other processes of a training, and the group that this one forms with them from the first training on."""

    def __init__(self, join_group: Callable[[], RankGroup], workers: list[PassWorker]) -> None:
        self.join_group = join_group
        self.group: RankGroup | None = None
        self.workers, self.threads = workers, ThreadPoolExecutor(len(workers))
        self.has_returned = threading.Event()

    def start(self) -> None:
        """Wait until all have imported torch, so that an error by then is raised and nobody waits for them."""
        self.has_returned.set()
        for worker in self.workers:
            worker.start()
        for answer in self.ask(lambda worker: [*worker.messages, pickle.dumps(None)]):
            answer.result()

    def fit(
        self, *arguments: Any, on_epoch: Callable[[TrainingState], None] = lambda _: None, **options: Any
    ) -> TrainingState:
        """As fit() in this process, while the others do the same."""
        item = pickle.dumps((arguments, options))
        self.has_returned.clear()
        answers = self.ask(lambda _: [item])
        try:
            self.group = self.group or self.join_group()
            state = fit(*arguments, **options, on_epoch=on_epoch, group=self.group)
        except RuntimeError as error:
            if not is_lost_connection(error):
                raise
            self.has_returned.set()
            self.end()
            raise first_error(answers) from error
        finally:
            self.has_returned.set()
        for answer in answers:
            answer.result()
        return state

    def ask(self, messages: Callable[[PassWorker], list[bytes]]) -> list[Future[None]]:
        return [self.threads.submit(self.exchange, worker, messages(worker)) for worker in self.workers]

    def exchange(self, worker: PassWorker, messages: list[bytes]) -> None:
        """Wait for the answer. If it is an error, or there is none, end all processes: none can go on without it."""
        try:
            unpack_answer(receive_answer(worker, messages))
        except Exception as error:
            failure = InfrastructureError(DIED) if is_lost_connection(error) else error
            for each in self.workers:
                each.end()
            if not self.has_returned.wait(SECONDS_TO_NOTICE):
                sys.stderr.write(f"codline: train: {failure}\n")
                os._exit(failure.exit_code if isinstance(failure, CodlineError) else CodlineError.exit_code)
            raise failure from None

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
        self.threads.shutdown()
        if self.group is not None:
            self.group.close()
            self.group = None


def receive_answer(worker: PassWorker, messages: list[bytes]) -> bytes:
    kernel_kills = out_of_memory.kernel_kills()
    try:
        return worker.exchange(messages)
    except (EOFError, OSError):  # the process has died
        if out_of_memory.kernel_kills() > kernel_kills:
            raise MemoryError from None
        raise InfrastructureError(DIED) from None


def is_lost_connection(error: Exception) -> bool:
    """Whether another process has ended; gloo has no error class of its own."""
    return isinstance(error, distributed.DistError) or "/gloo/" in str(error)


def first_error(answers: list[Future[None]]) -> BaseException:
    """Of the other processes, once all have ended: if there is any, one that explains why they have."""
    errors = [error for answer in answers if (error := answer.exception()) is not None]
    return min(errors, key=lambda error: isinstance(error, InfrastructureError), default=InfrastructureError(DIED))
