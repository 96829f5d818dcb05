"""What a worker answers: the result of an item or the error, pickled. The same for every engine."""

import pickle
import platform
import traceback
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from codline.core.errors import CodlineError, UserError, causes


class JobRunner:
    """In a worker: calls `setup` and loads `job` with the first item, then answers one item after the other."""

    def __init__(self, setup: bytes, job: bytes) -> None:
        self.setup, self.job = setup, job
        self.compute: Callable[[Any], Any] | None = None

    def answer(self, item: bytes) -> bytes:
        """Pickled (True, result) or (False, [error, its cause, ...])."""
        try:
            if self.compute is None:
                pickle.loads(self.setup)()  # before the networks of the job are loaded: torch reads some settings once
                self.compute = pickle.loads(self.job)()
            return pickle.dumps((True, self.compute(pickle.loads(item))))
        except ModuleNotFoundError as error:  # of a package that the stage has, or it could not have sent the job
            found = f"the worker on {platform.node()} has no Python package {error.name!r}"
            return pickle.dumps((False, [UserError(f"{found}; expected it on every machine that runs passes")]))
        except Exception as error:
            return pickle.dumps((False, picklable_errors(error)))


def picklable_errors(error: Exception) -> list[BaseException]:
    """The error and its causes, which pickle would leave out; an unexpected one has its traceback as a note."""
    errors, lines = list(causes(error)), "".join(traceback.format_exception(error))
    if not isinstance(error, CodlineError):
        error.add_note(lines)
    try:
        pickle.loads(pickle.dumps(errors))
    except Exception:
        errors = [CodlineError(f"unexpected {type(error).__name__}: {error}")]
        errors[0].add_note(lines)
    return errors


def unpack_answer(answer: bytes) -> Any:
    """In the stage: the result; raises the error that the job has raised."""
    has_succeeded, value = pickle.loads(answer)
    if has_succeeded:
        return value
    for error, cause in pairwise(value):
        error.__cause__ = cause
    raise value[0]
