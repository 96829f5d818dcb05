"""Errors shown to users as one sentence, each with its own exit code for scripts."""

import contextlib
import errno
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class CodlineError(Exception):
    """Base class; on its own, an unexpected error or out of memory."""

    exit_code = 1

    def __str__(self) -> str:
        return one_line(super().__str__())


class UserError(CodlineError):
    """A parameter or argument is wrong."""

    exit_code = 2


class DataError(CodlineError):
    """A file is missing, corrupt, or has unexpected content."""

    exit_code = 3


class TrainingError(CodlineError):
    """Training cannot continue."""

    exit_code = 4


class StorageError(CodlineError):
    """A file could not be written, for example because the disk is full."""

    exit_code = 5


class BusyError(CodlineError):
    """Another process holds a lock or a port."""

    exit_code = 6


class InfrastructureError(CodlineError):
    """A stage was killed or timed out; a retry may succeed."""

    exit_code = 7


class WaitingForPeople(CodlineError):  # noqa: N818 (a state, not an error)
    """People have yet to label images."""

    exit_code = 8


class PoolUsedUp(CodlineError):  # noqa: N818 (the end of a campaign, not an error)
    """Every image of the pool has a label: there is nothing left to select."""

    exit_code = 9


class Stopped(CodlineError):  # noqa: N818 (an interruption, not an error)
    """Interrupted by Ctrl-C."""

    exit_code = 130

    def __init__(self, sentence: str = "stopped; run it again to go on from here") -> None:
        super().__init__(sentence)


BY_EXIT_CODE = {kind.exit_code: kind for kind in CodlineError.__subclasses__()}


HERE = "this directory"
FULL = "free some space and run it again"
DISK_ERRORS = {  # what to do about a disk that is full, read-only or failing
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EROFS: "make the directory writable and run it again",
    errno.EIO: "check the disk and run it again",
}


def disk_error(error: BaseException) -> StorageError | None:
    """The sentence about the disk if it is what caused this error, however many others were raised after it."""
    for each in causes(error):
        if isinstance(each, StorageError):
            return each
        if isinstance(each, OSError) and each.errno in DISK_ERRORS:
            return storage_error(each, each.filename or HERE)
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on. `raise error from error` makes a circle, which ends here."""
    seen = list[BaseException]()
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__


def storage_error(error: OSError, path: object) -> StorageError:
    assert error.errno is not None
    action = "read or written" if error.errno == errno.EIO else "written"
    return StorageError(f"{path}: cannot be {action}: {os.strerror(error.errno)}; {DISK_ERRORS[error.errno]}")


def unwritable_directory() -> StorageError | None:
    """Tries to write to the current directory. Prefect, MLflow and git report a full disk in words of their own."""
    try:
        with tempfile.TemporaryFile(dir=".") as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return storage_error(error, HERE) if error.errno in DISK_ERRORS else None
    return None


@contextmanager
def exit_on_error() -> Iterator[None]:
    """For commands: write the sentence of an error to standard error and exit with its code."""
    try:
        yield
    except Exception as error:
        known = disk_error(error) or error
        if not isinstance(known, UserError | TrainingError | StorageError | BusyError):
            known = unwritable_directory() or known
        if not isinstance(known, CodlineError):
            raise
        with contextlib.suppress(OSError):  # standard error may be a file on a full disk
            sys.stderr.write(f"codline: {known}\n")
            sys.stderr.flush()
        sys.exit(known.exit_code)


def one_line(text: str) -> str:
    """For terminals: line breaks, escape sequences, and bytes of file names that are not UTF-8, as \\x1b is written."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


LISTED_NAMES = 5  # at most, in one sentence


def first_names(names: list[str]) -> str:
    """For sentences: the first names and the number of the others."""
    others = len(names) - LISTED_NAMES
    return ", ".join(names[:LISTED_NAMES]) + (f" and {others} more" if others > 0 else "")
