"""The engine is an environment variable, or an option that sets it."""

import os

import pytest

from codline.core.errors import UserError
from codline.engine.setting import ENGINE, choose_engine, worker_count


@pytest.mark.parametrize(
    ("setting", "count"), [("", 1), ("local", 1), ("local:1", 1), ("local:2", 2), ("local:256", 256)]
)
def test_setting_names_a_number_of_processes(setting: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, setting)
    assert worker_count() == count


@pytest.mark.parametrize(
    "setting", ["ray", "local:", "local:0", "local:-1", "local:257", "local:1.5", "local:²", "2", " "]
)
def test_other_settings_are_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, setting)
    with pytest.raises(
        UserError, match=rf"^--engine or CODLINE_ENGINE: found '{setting}', expected local \(one process\)"
    ):
        worker_count()


def test_choose_engine_replaces_the_environment_unless_nothing_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "local:3")
    choose_engine(None)
    assert worker_count() == 3
    choose_engine("local:2")
    assert os.environ[ENGINE] == "local:2"
