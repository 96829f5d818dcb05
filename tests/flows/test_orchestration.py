"""benchmarks/orchestration.py reads the times that a real campaign has recorded."""

import pytest

from benchmarks.orchestration import STAGES, command_rows, cycle_rows, median_cycle, stage_rows
from tests.project import Project

pytestmark = pytest.mark.slow


def test_orchestration_benchmark_reads_the_times_of_a_real_campaign(project: Project) -> None:
    project.must("codline", "run", "--seed", "1")  # another worker's server may have run `finished`
    cycle = median_cycle(project, ["c1"])
    assert set(STAGES) == set(cycle.stages) == set(cycle.tasks)
    assert all(0 < cycle.stages[stage] < cycle.tasks[stage] < cycle.total for stage in STAGES)
    functions = dict.fromkeys(STAGES, 0.01)
    rows = cycle_rows(functions, cycle, cycle)
    assert rows[-1].note == f"all: {cycle.total - 0.07:.1f} s"
    assert rows[-1].ratio == pytest.approx(cycle.total / 0.07)
    assert len(stage_rows(functions, cycle)) == 3 * len(STAGES)


def test_orchestration_benchmark_times_commands_with_nothing_to_do(project: Project) -> None:
    rows = command_rows(project, rounds=0)
    assert [row.contender for row in rows] == ["codline status", "dvc status", "codline run"]
    assert all(row.seconds and row.seconds > 0.1 for row in rows)
