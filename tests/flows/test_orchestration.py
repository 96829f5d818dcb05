"""benchmarks/orchestration.py reads the times that a real campaign has recorded."""

import pytest

from benchmarks.orchestration import ORDER, cycle_rows, stage_rows, typical, waiting
from tests.project import Project

pytestmark = pytest.mark.slow


def test_orchestration_benchmark_reads_the_times_of_a_real_campaign(project: Project) -> None:
    project.must("codline", "run", "--seed", "1")  # `finished` may have been run by another worker's server
    cycle = typical(project, ["c1"])
    assert set(ORDER) == set(cycle.inside) == set(cycle.tasks)
    assert all(0 < cycle.inside[stage] < cycle.tasks[stage] < cycle.all for stage in ORDER)
    bare = dict.fromkeys(ORDER, 0.01)
    rows = cycle_rows(bare, cycle, cycle)
    assert rows[-1].note == f"all: {cycle.all - 0.07:.1f} s"
    assert rows[-1].ratio == pytest.approx(cycle.all / 0.07)
    assert len(stage_rows(bare, cycle)) == 3 * len(ORDER)


def test_orchestration_benchmark_times_commands_with_nothing_to_do(project: Project) -> None:
    rows = waiting(project, rounds=0)
    assert [row.contender for row in rows] == ["codline status", "dvc status", "codline run, all done (warm make demo)"]
    assert all(row.seconds and row.seconds > 0.1 for row in rows)
