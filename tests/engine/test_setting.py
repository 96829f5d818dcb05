"""The engine is an environment variable, or an option that sets it."""

import os

import pytest

from codline.core.errors import UserError
from codline.engine import setting
from codline.engine.setting import ENGINE, EngineSetting, choose_engine, engine_setting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", EngineSetting()),
        ("local", EngineSetting()),
        ("local:1", EngineSetting()),
        ("local:256", EngineSetting(256)),
        ("ray", EngineSetting(is_ray=True)),
        ("ray:4", EngineSetting(4, is_ray=True)),
        ("ray:4@10.0.0.1:6379", EngineSetting(4, is_ray=True, address="10.0.0.1:6379")),
        ("ray:2@[::1]:6379,cpus=8,gpus=1", EngineSetting(2, is_ray=True, address="[::1]:6379", cpus=8, gpus=1)),
        ("ray:2,gpus=1", EngineSetting(2, is_ray=True, gpus=1)),
    ],
)
def test_setting_names_workers_and_where_they_run(
    text: str, expected: EngineSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE, text)
    assert engine_setting() == expected


WRONG_LOCAL = (
    "local:",
    "local:0",
    "local:-1",
    "local:257",
    "local:1.5",
    "local:²",
    "2",
    " ",
    "local:2@a:1",
    "local,cpus=2",
)
WRONG_RAY = ("ray:0", "ray:257", "ray:2@", "ray:2@a", "ray:2@a:b", "ray:2,cpus=0", "ray:2,cpus", "ray:2,gpus=1,cpus=2")


@pytest.mark.parametrize("text", [*WRONG_LOCAL, *WRONG_RAY])
def test_other_settings_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, text)
    with pytest.raises(UserError) as refused:
        engine_setting()
    assert str(refused.value).startswith(f"--engine or {ENGINE}: found '{text}', expected local, local:N with")


def test_choose_engine_replaces_the_environment_unless_nothing_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "local:3")
    choose_engine(None)
    assert engine_setting().workers == 3
    choose_engine("local:2")
    assert os.environ[ENGINE] == "local:2"


def test_choose_engine_refuses_ray_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "local")
    monkeypatch.setattr(setting, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"^--engine ray: Ray is not installed; expected the extra `ray`"):
        choose_engine("ray:2")
