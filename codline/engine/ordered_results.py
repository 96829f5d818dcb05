"""Results of workers in the order of the items, with a bounded number of items under way. The same for every engine."""

import pickle
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from codline.data.decoding import bounded_map
from codline.engine.job_answers import unpack_answer

ITEMS_PER_WORKER = 2  # that may be taken ahead of the consumer: one that is computed, one that waits to be consumed

T = TypeVar("T")


def results_in_order(
    workers: int, compute: Callable[[bytes], bytes], items: Iterable[T], stop: Callable[[], None]
) -> Generator[Any]:
    """Yield the result of each item in order.

    `compute` is called by as many threads as there are workers, with a pickled item, and returns its answer, see
    job_answers.py. At most ITEMS_PER_WORKER items per worker are taken ahead of the consumer: memory does not grow with
    their number, and a slow consumer stalls the workers. `stop` is called if the consumer breaks off or an item fails:
    it makes calls that still run fail.
    """

    def result(item: T) -> Any:
        return unpack_answer(compute(pickle.dumps(item)))

    threads = ThreadPoolExecutor(workers)
    try:
        yield from bounded_map(threads, result, items, window=ITEMS_PER_WORKER * workers)
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        stop()
        raise
    finally:
        threads.shutdown()
