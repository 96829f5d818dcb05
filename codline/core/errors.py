"""Errors shown to users as one sentence, each with its own exit code for scripts."""

import re
import sys
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


@contextmanager
def exit_on_error() -> Iterator[None]:
    """For commands: write the sentence of an error to standard error and exit with its code."""
    try:
        yield
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)


def one_line(text: str) -> str:
    """For terminals: line breaks, escape sequences, and bytes of file names that are not UTF-8, as \\x1b is written."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


LISTED_NAMES = 5  # at most, in one sentence


def first_names(names: list[str]) -> str:
    """For sentences: the first names and the number of the others."""
    others = len(names) - LISTED_NAMES
    return ", ".join(names[:LISTED_NAMES]) + (f" and {others} more" if others > 0 else "")
