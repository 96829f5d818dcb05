"""A disk that is full, read-only or failing ends a command with exit code 5 and one sentence; then it runs again."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codline.core.errors import StorageError
from tests.faults.conftest import Tally, long_only
from tests.faults.fault_points import Ended, Fault, FaultPoints
from tests.faults.small_pipeline import SmallPipeline
from tests.faults.stage_command import STAGES, StageCommand
from tests.project import Project, free_port
from tests.workspace import Workspace

ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS, "failing": errno.EIO}
OTHER_REASONS = (  # of SQLite and DVC, for all of them
    "disk I/O error",
    "database or disk is full",
    "attempt to write a readonly database",
    "unable to open database file",
    "neither be linked nor copied",
    "cannot be written, or another process has held it",
)
each_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


def sentence_problem(ended: Ended, error: int) -> str:
    """Empty if a command ended with the exit code and the one sentence of a disk error."""
    lines = ended.output.splitlines()
    if ended.code != StorageError.exit_code:
        return f"exit code {ended.code}: {ended.output}"
    if len(lines) != 1 or not lines[0].startswith("codline: "):
        return f"{len(lines)} lines: {ended.output}"
    reasons = (os.strerror(error), *OTHER_REASONS)
    return "" if any(reason in lines[0] for reason in reasons) else f"another reason: {lines[0]}"


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
        ended = command.run(at, error, lasts)
        if faults.failed:  # some calls need no space, so that there are fewer of them
            case = f"{stage}, {os.strerror(error)} at {faults.failed}{' and later' if lasts else ''}"
            tally.count("disk errors in a stage", case, stage_problem(command, ended, error, expected))


def stage_problem(command: StageCommand, ended: Ended, error: int, expected: dict[Path, bytes]) -> str:
    if ended.code == 0:  # it could do without that call
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
        if not faults.failed:
            continue
        problem = sentence_problem(ended, error) if ended.code else ""  # it could do without that call
        again = pipeline.run_codline()
        if not problem and (again.code or pipeline.results() != expected):
            problem = f"does not run again: {again.output}"
        tally.count("disk errors in the driver", case, problem)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; skips the test without the permission to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with contextlib.suppress(FileNotFoundError):
        if not subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True, check=False).returncode:
            yield disk
            subprocess.run(["umount", "-l", disk], check=True)
            return
    pytest.skip("no permission to mount a file system")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_commands_on_a_disk_that_cannot_be_written_end_with_one_sentence(
    finished: Project, disk: Path, state: str, tally: Tally
) -> None:
    project = finished.copy_to(disk / "codline")
    size = subprocess.run(["du", "-sk", disk], capture_output=True, text=True, check=True).stdout.split()[0]
    subprocess.run(["mount", "-o", f"remount,{'ro' if state == 'read-only' else f'size={size}k'}", disk], check=True)
    if state == "full":
        with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
    for words in (["run", "--cycles", "3"], ["track"], ["study", "digits-strategies"], ["preset", "fashion-mnist"]):
        done = project.run("codline", *words)
        problem = sentence_problem(Ended(done.returncode, done.stderr), ERRORS[state])
        tally.count("commands on a full or read-only disk", f"{state}: codline {' '.join(words)}", problem)


@long_only
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_campaign_on_a_disk_that_fills_up_ends_with_one_sentence_and_runs_again(
    finished: Project, faults: FaultPoints, tmp_path: Path, tally: Tally
) -> None:
    """All processes of the campaign fail from some call on: stages, Prefect's server with its database, MLflow's."""
    fresh = finished.copy_to(tmp_path / "fresh")
    root = tmp_path / "codline"
    prefect = {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api", "PREFECT_HOME": str(root / ".prefect")}
    project = Project(root, **fresh.environment | prefect | {"PYTHONPATH": str(root)})
    words = ["codline", "run", "--cycles", "3"]

    def run(at: int, error: int) -> Ended:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(fresh.root, root, symlinks=True)
        with faults.environment(Fault(root, at, error, lasts=True)) as environment:
            done = project.with_environment(**environment, LD_PRELOAD=str(faults.library)).run(*words)
        return Ended(done.returncode, done.stderr)

    assert run(0, 0).code == 0
    expected, calls = project.lock, faults.calls
    cases = [
        (round(share * calls), error) for share in (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) for error in ERRORS.values()
    ]
    for at, error in cases:
        ended = run(at, error)
        problem = sentence_problem(ended, error)
        case = f"{os.strerror(error)} from {faults.failed} on"
        if not problem and (again := project.run(*words)).returncode:
            problem = f"does not run again: {again.stderr}"
        if not problem and project.lock != expected:
            problem = "other bytes when it was run again"
        tally.count("campaigns on a disk that fills up", case, problem)
