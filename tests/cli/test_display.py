"""What the terminal says of a campaign when it ends: a count of what is done, at whatever moment it was last looked at."""

import io

import pytest
from rich.console import Console

from codline.cli import display
from codline.runtime.pipeline import Pipeline
from tests.workspace import REPOSITORY


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.chdir(REPOSITORY)
    written = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=written, width=120))
    return written


def test_stages_that_end_with_the_campaign_are_counted(said: io.StringIO) -> None:
    names = Pipeline().names()
    quiet = [name for name in names if not name.startswith("evaluate@")]  # of which the metrics would be read
    with display.live() as show, show("starting Prefect"):
        for name in quiet:
            display.listen(name, "started", 0.0)
            display.listen(name, "skipped", 0.0)
    assert f"{len(quiet)} of {len(names)} stages" in said.getvalue()


def test_a_failed_stage_is_counted_once_it_has_ended_well(said: io.StringIO) -> None:
    with display.live() as show, show("starting Prefect"):
        for outcome in ("started", "failed", "started", "ran"):
            display.listen("prepare", outcome, 0.0)
    assert f"1 of {len(Pipeline().names())} stages" in said.getvalue()


def test_a_stage_that_failed_is_not_called_done(said: io.StringIO) -> None:
    with display.live() as show, show("starting Prefect"):
        display.listen("prepare", "started", 0.0)
        display.listen("prepare", "failed", 0.0)
    assert f"0 of {len(Pipeline().names())} stages" in said.getvalue()
