"""The time limit of stages: a cycle inside a campaign does not lift the campaign's limit."""

import os

import pytest

from flows.cycle import stage_timeout


def test_time_limit_of_a_campaign_applies_again_after_each_of_its_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODLINE_TIMEOUT", raising=False)
    with stage_timeout(2):
        for minutes in (2, 1, None):
            with stage_timeout(minutes):
                assert os.environ.get("CODLINE_TIMEOUT") == (None if minutes is None else str(60 * minutes))
            assert os.environ["CODLINE_TIMEOUT"] == "120"
    assert "CODLINE_TIMEOUT" not in os.environ
