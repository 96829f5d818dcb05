"""A disk that is full, read-only or failing ends a command with exit code 5 and one sentence; then it runs again."""

import errno
import os
from pathlib import Path

import pytest

from codline.core.errors import StorageError
from tests.faults.conftest import Tally
from tests.faults.fault_points import Ended, FaultPoints
from tests.faults.small_pipeline import SmallPipeline
from tests.faults.stage_command import STAGES, StageCommand
from tests.workspace import Workspace

ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS, "failing": errno.EIO}
each_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


def sentence_problem(ended: Ended, error: int) -> str:
    """Empty if a command ended with the exit code and the one sentence of a disk error."""
    lines = ended.output.splitlines()
    if ended.code != StorageError.exit_code:
        return f"exit code {ended.code}: {ended.output}"
    if len(lines) != 1 or not lines[0].startswith("codline: "):
        return f"{len(lines)} lines: {ended.output}"
    return "" if os.strerror(error) in lines[0] else f"another reason: {lines[0]}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@each_error
@pytest.mark.parametrize("stage", STAGES)
def test_stage_names_a_disk_error_at_any_write(
    faults: FaultPoints, workspace: Workspace, stage: str, error: int, tally: Tally
) -> None:
    command = StageCommand(faults, workspace, stage)
    command.clear()
    command.run_undisturbed()
    expected, calls = command.contents(), faults.calls
    cases = [(at, lasts) for at in range(1, calls + 1) for lasts in (False, True)]
    for at, lasts in tally.sample(cases[:: 11 if stage in ("prepare", "report") else 3], 1):
        command.clear()
        ended, call = command.run(at, error, lasts), faults.failed
        case = f"{stage}, {os.strerror(error)} at {call}{' and later' if lasts else ''}"
        tally.count("disk errors in a stage", case, stage_problem(command, ended, error, expected, call))


def stage_problem(command: StageCommand, ended: Ended, error: int, expected: dict[Path, bytes], call: str) -> str:
    if ended.code == 0 and call:  # it could do without that call
        return "" if command.contents() == expected else "other bytes, and no error"
    problem = sentence_problem(ended, error)
    partial = [path.name for path, content in command.contents().items() if content != expected[path]]
    return problem or (f"half-written: {partial}" if partial else "")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@each_error
def test_driver_names_a_disk_error_at_any_write_and_runs_again(
    faults: FaultPoints, pipeline: SmallPipeline, error: int, tally: Tally
) -> None:
    assert pipeline.run_codline().code == 0
    expected, calls = pipeline.results(), faults.calls
    cases = [(at, lasts) for at in range(1, calls + 1) for lasts in (False, True)]
    for at, lasts in tally.sample(cases[::11], 2):
        pipeline.reset()
        ended = pipeline.run_codline(at, error, lasts)
        case = f"{os.strerror(error)} at {faults.failed}{' and later' if lasts else ''}"
        problem = sentence_problem(ended, error) if ended.code else ""
        again = pipeline.run_codline()
        if not problem and (again.code or pipeline.results() != expected):
            problem = f"does not run again: {again.output}"
        tally.count("disk errors in the driver", case, problem)
