"""The progress bars count finished stages; metrics are shown with their intervals."""

import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from codline.cli import display
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from tests.workspace import REPOSITORY, Workspace


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.chdir(REPOSITORY)
    output = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=output, width=120))
    return output


def test_progress_counts_stages_that_end_just_before_the_campaign(terminal: io.StringIO) -> None:
    names = Pipeline().stage_names()
    without_metrics = [name for name in names if not name.startswith("evaluate@")]  # evaluate would read metrics.json
    with display.CampaignProgress("starting Prefect") as progress:
        for name in without_metrics:
            progress.on_stage_event(name, "started", 0.0)
            progress.on_stage_event(name, "skipped", 0.0)
    assert f"{len(without_metrics)} of {len(names)} stages" in terminal.getvalue()


@pytest.mark.parametrize(
    ("outcomes", "done"), [(["started", "failed", "started", "ran"], 1), (["started", "failed"], 0)]
)
def test_progress_counts_a_failed_stage_only_once_a_retry_succeeds(
    terminal: io.StringIO, outcomes: list[str], done: int
) -> None:
    with display.CampaignProgress("starting Prefect") as progress:
        for outcome in outcomes:
            progress.on_stage_event("prepare", outcome, 0.0)
    assert f"{done} of {len(Pipeline().stage_names())} stages" in terminal.getvalue()


def test_progress_shows_the_warnings_of_a_stage_once(
    terminal: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path))
    with display.CampaignProgress("starting Prefect") as progress:
        progress.on_stage_event("prepare", "started", 0.0)
        state_directory.write_note("warnings", "prepare", {"sentences": ["2 files [a, b] are skipped"]})
        progress.on_stage_event("prepare", "ran", 0.0)
    assert terminal.getvalue().count("  prepare: 2 files [a, b] are skipped\n") == 1


@pytest.mark.parametrize("cycle", ["c1", "c3"])
def test_progress_shows_the_primary_metric_of_a_cycle_with_its_interval(
    terminal: io.StringIO, workspace: Workspace, cycle: str
) -> None:
    values = json.loads(workspace.path("evaluate", "metrics", cycle).read_text())
    with display.CampaignProgress("starting Prefect") as progress:
        progress.on_stage_event(f"evaluate@{cycle}", "started", 0.0)
        progress.on_stage_event(f"evaluate@{cycle}", "ran", 1.0)
    interval = f"[{100 * values['accuracy_low']:.1f}, {100 * values['accuracy_high']:.1f}]"
    means = f"balanced {values['balanced_accuracy']:.1%}  macro F1 {values['macro_f1']:.1%}"
    assert f"{values['labels']} labels  accuracy {values['accuracy']:.1%} {interval}  {means}" in terminal.getvalue()


def test_learning_curve_has_a_row_with_an_interval_for_every_cycle(terminal: io.StringIO, workspace: Workspace) -> None:
    display.print_learning_curve()
    rows = re.findall(r"(c\d) .*? \d+\.\d% \[\d+\.\d, \d+\.\d\] .*? \d+\.\d% .*? \d+\.\d% ", terminal.getvalue())
    assert rows == ["c1", "c2", "c3"]
    assert "balanced" in terminal.getvalue()


@pytest.mark.parametrize("ranks_pool", [True, False])
def test_learning_curve_has_the_loss_ratio_and_of_strategies_that_rank_also_spearman(
    terminal: io.StringIO, workspace: Workspace, ranks_pool: bool
) -> None:
    path = workspace.path("diagnose", "diagnostics", "c2")
    for cycle in ("c1", "c2"):
        values = {"loss_ratio": 1.5, "spearman": 0.25 if ranks_pool else None}
        workspace.path("diagnose", "diagnostics", cycle).write_text(json.dumps(json.loads(path.read_text()) | values))
    display.console.width = 80
    display.print_learning_curve()
    rows = [line.split() for line in terminal.getvalue().splitlines() if line.split()[:1] in (["c1"], ["c2"])]
    assert [row[8:] for row in rows] == [["1.50", *["+0.25"] * ranks_pool]] * 2
    assert ("Spearman" in terminal.getvalue()) == ranks_pool
    assert "…" not in terminal.getvalue()


def test_status_shows_metrics_of_cycles_that_are_up_to_date_alone(terminal: io.StringIO, workspace: Workspace) -> None:
    display.print_status(["train@c3", "evaluate@c3", "report"], {}, [])
    assert re.findall(r"(c\d) .*\d\.\d\]", terminal.getvalue()) == ["c1", "c2"]
    assert "Up to 3 stages to do: codline run" in terminal.getvalue()


def test_progress_names_the_workers_of_a_stage_that_has_several() -> None:
    note = {"unit": "images", "done": 512, "total": 1000, "workers": 1}
    assert display.format_progress(note) == "images 512 of 1000"
    assert display.format_progress(note | {"workers": 2}) == "images 512 of 1000 (2 workers)"
    started = time.time() - 64
    text = display.format_progress(note | {"workers": 2, "started": started})
    assert text == "images 512 of 1000 (2 workers), 8 a second, 0:01:01 left"
    assert display.format_progress(note | {"started": time.time()}) == "images 512 of 1000"
    assert display.format_progress({"unit": "epochs", "done": 1, "total": 2, "started": started}) == "epochs 1 of 2"
