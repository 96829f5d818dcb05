"""dvc.lock has the text that DVC itself would write, and is complete at every instant."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import dumps_yaml
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from codline.orchestration import dvc_lock
from tests.workspace import REPOSITORY

LOCK = "schema: '2.0'\nstages:\n  prepare:\n    cmd: python\n"
COMMITTED = (REPOSITORY / "dvc.lock").read_text(encoding="utf-8")
ENTRIES: dict[str, Any] = YAML(typ="safe").load(COMMITTED)["stages"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".codline").mkdir()
    return tmp_path


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(sorted(ENTRIES)), st.sampled_from(sorted(ENTRIES))), min_size=1, max_size=6))
def test_replace_entry_gives_the_text_that_dvc_would_write(replacements: list[tuple[str, str]]) -> None:
    text, data = dvc_lock.HEAD, {}
    for name, content in replacements:
        text = dvc_lock.replace_entry(text, {name: ENTRIES[content]})
        data[name] = deepcopy(ENTRIES[content])  # one object named twice would be dumped as an alias
    assert text == dumps_yaml({"schema": "2.0", "stages": data})


def test_replace_entry_with_the_same_entry_changes_nothing() -> None:
    for name, entry in ENTRIES.items():
        assert dvc_lock.replace_entry(COMMITTED, {name: entry}) == COMMITTED


@pytest.mark.parametrize(
    "truncated", ["", "schema: '2.0'\nstages:\n  prepare:\n", LOCK[:-3] + "\n   : x: y", "stages: 3\n"]
)
def test_repair_restores_a_truncated_dvc_lock(here: Path, truncated: str) -> None:
    (here / "dvc.lock").write_text(truncated)
    (here / ".codline/dvc.lock").write_text(LOCK)
    dvc_lock.repair()
    assert (here / "dvc.lock").read_text() == LOCK


def test_repair_leaves_a_valid_dvc_lock_alone(here: Path) -> None:
    (here / "dvc.lock").write_text(LOCK)
    (here / ".codline/dvc.lock").write_text(LOCK.replace("prepare", "other"))
    dvc_lock.repair()
    assert (here / "dvc.lock").read_text() == LOCK
