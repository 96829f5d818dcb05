"""Warnings reach users as one line each: on standard error, or through a note that a campaign shows."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from codline.runtime import log


@pytest.fixture(autouse=True)
def logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("CODLINE_QUIET", raising=False)
    logger = logging.getLogger("codline")
    yield logger
    logger.handlers, logger.propagate = [], True


def test_warning_of_a_stage_is_one_line_on_standard_error(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log.show_warnings("train@c1")
    logger.warning("found %d of %d", 2, 3)
    assert capsys.readouterr().err == "codline: train@c1: found 2 of 3\n"
    log.show_warnings()
    logger.warning("dvc.lock is broken")
    assert capsys.readouterr().err == "codline: dvc.lock is broken\n"


def test_warning_of_a_stage_is_kept_for_the_campaign_that_shows_it(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.stage_warnings("prepare") == []
    monkeypatch.setenv("CODLINE_QUIET", "1")
    log.show_warnings("prepare")
    logger.warning("first")
    logger.warning("second")
    assert capsys.readouterr().err == ""
    assert log.stage_warnings("prepare") == ["first", "second"]
