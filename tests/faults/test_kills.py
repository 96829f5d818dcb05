"""SIGKILL at any call that changes a file: nothing half-written is taken for complete, and the same bytes come out."""

from pathlib import Path

import pytest

from tests.faults.conftest import Tally
from tests.faults.fault_points import Ended, FaultPoints
from tests.faults.small_pipeline import SmallPipeline
from tests.faults.stage_command import STAGES, StageCommand
from tests.workspace import Workspace


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stage", STAGES)
def test_stage_killed_at_any_write_gives_the_same_bytes_when_run_again(
    faults: FaultPoints, workspace: Workspace, stage: str, tally: Tally
) -> None:
    command = StageCommand(faults, workspace, stage)
    command.clear()
    command.run_undisturbed()
    expected, calls = command.contents(), faults.calls
    for at in tally.sample(range(1, calls + 1), 1 if stage in ("prepare", "report") else 2):
        command.clear()
        ended = command.run(at)
        tally.count(
            "kills at a write of a stage", f"{stage} at {faults.failed}", stage_problem(command, ended, expected)
        )


def stage_problem(command: StageCommand, ended: Ended, expected: dict[Path, bytes]) -> str:
    if not ended.was_killed:
        return f"exit code {ended.code} instead of a kill: {ended.output}"
    partial = [path.name for path, content in command.contents().items() if content != expected[path]]
    if partial:
        return f"half-written: {partial}"
    again = command.run()
    if again.code:
        return f"does not run again: {again.output}"
    return "" if command.contents() == expected else "other bytes when it was run again"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_driver_killed_at_any_write_is_resumed_by_itself_and_by_dvc_repro(
    faults: FaultPoints, pipeline: SmallPipeline, tally: Tally
) -> None:
    assert pipeline.run_codline().code == 0
    expected, calls = pipeline.results(), faults.calls
    for at in tally.sample(range(1, calls + 1), 4):
        pipeline.reset()
        ended, call = pipeline.run_codline(at), faults.failed
        resume = pipeline.run_dvc if at % 2 else pipeline.run_codline
        problem = "" if ended.was_killed else f"exit code {ended.code} instead of a kill: {ended.output}"
        tally.count("kills at a write of the driver", call, problem or pipeline_problem(pipeline, resume(), expected))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dvc_repro_killed_at_any_write_is_resumed_by_dvc_repro(
    faults: FaultPoints, pipeline: SmallPipeline, tally: Tally
) -> None:
    """A kill before DVC has started a stage is repaired by codline's next command: none of its code runs before."""
    assert pipeline.run_dvc().code == 0
    expected, calls = pipeline.results(), faults.calls
    for at in tally.sample(range(1, calls + 1), 4):
        pipeline.reset()
        ended, call = pipeline.run_dvc(at), faults.failed
        problem = "" if ended.was_killed else f"exit code {ended.code} instead of a kill: {ended.output}"
        kind = "kills at a write of dvc repro"
        if not (pipeline.root / ".codline").exists():
            kind += ", before its first stage"
            problem = problem or pipeline_problem(pipeline, pipeline.run_codline(), expected)
        tally.count(kind, f"{call} ({at})", problem or pipeline_problem(pipeline, pipeline.run_dvc(), expected))


def pipeline_problem(pipeline: SmallPipeline, resumed: Ended, expected: list[bytes]) -> str:
    if resumed.code:
        return f"does not run again: {resumed.output}"
    if not pipeline.cache_is_whole():
        return "a damaged object in DVC's cache"
    return "" if pipeline.results() == expected else "other bytes when it was run again"
