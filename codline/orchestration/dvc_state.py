"""DVC's database of file hashes (`.dvc/tmp/site-cache`): an error of its disk ends a command.

DVC asks its library, diskcache, to repeat a transaction that cannot begin until it can. On a full disk that is never.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diskcache import Cache, Timeout

from codline.core.errors import StorageError

transact = Cache._transact  # waits up to a minute for another process


@contextmanager
def transact_once(cache: Any, retry: bool = False, filename: str | None = None) -> Iterator[Any]:  # noqa: ARG001
    """diskcache's `_transact`, which never retries."""
    try:
        with transact(cache, False, filename) as transaction:
            yield transaction
    except Timeout as error:
        action = "cannot be written, or another process has held it for a minute; check the disk and run it again"
        raise StorageError(f"{cache.directory}: {action}") from error


def stop_endless_retries() -> None:
    """In this process."""
    Cache._transact = transact_once
