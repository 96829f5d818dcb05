"""The snapshot of what a stage depends on names the first change."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from codline.core.files import file_version
from codline.runtime import stage_snapshot
from codline.runtime.pipeline import Pipeline
from codline.runtime.stage_snapshot import changed_value
from tests.workspace import REPOSITORY

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.dictionaries(st.text("abc", min_size=1), inner) | st.lists(inner))


@given(values)
def test_changed_value_finds_nothing_in_equal_values(value: Any) -> None:
    assert changed_value("train", value, value) is None


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ({"epochs": 150}, {"epochs": 3}, "train.epochs changed from 150 to 3"),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 4}}, "train.a.c changed from 2 to 4"),
        ({"a": 1}, {"a": 1, "b": 2}, "train.b changed from nothing to 2"),
        ({"a": 1}, {}, "train.a changed from 1 to nothing"),
        ({"a": True}, {"a": 1}, "train.a changed from true to 1"),
        ({"a": {"b": 1}}, {"a": "x"}, "train.a changed from {'b': 1} to 'x'"),
    ],
)
def test_changed_value_names_the_key_and_both_values(before: Any, now: Any, change: str) -> None:
    assert changed_value("train", before, now) == change


def test_file_version_of_a_directory_changes_with_every_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_text("a")
    versions = [file_version(str(tmp_path))]

    def changed() -> bool:
        versions.append(file_version(str(tmp_path)))
        return versions[-1] not in versions[:-1]

    assert not changed()
    (tmp_path / "b").write_text("b")
    assert changed()
    (tmp_path / "b").rename(tmp_path / "c")
    assert changed()
    (tmp_path / "inner" / "a").write_text("longer")
    assert changed()
    (tmp_path / "c").unlink()
    assert changed()
    assert file_version(str(tmp_path / "none")) == "absent"


def test_snapshot_covers_what_dvc_records_of_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    pipeline = Pipeline()
    for name in pipeline.stage_names():
        keys, dependencies = stage_snapshot.recorded_by_dvc(name, pipeline.params)
        assert name.partition("@")[0] in keys
        assert f"stages/{name.partition('@')[0]}.py" in dependencies
        assert not any("$" in path for path in dependencies)
