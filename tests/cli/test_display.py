"""The progress bars of a campaign: the count of finished stages is right when the campaign ends."""

import io

import pytest
from rich.console import Console

from codline.cli import display
from codline.runtime.pipeline import Pipeline
from tests.workspace import REPOSITORY


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
