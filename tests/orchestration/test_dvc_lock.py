"""dvc.lock is the text that DVC itself would write, whole at every instant."""

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
def test_entries_put_in_one_by_one_are_what_dvc_would_dump_at_once(puts: list[tuple[str, str]]) -> None:
    text, data = dvc_lock.HEAD, {}
    for name, content in puts:
        text = dvc_lock.spliced(text, {name: ENTRIES[content]})
        data[name] = deepcopy(ENTRIES[content])  # one object named twice would be dumped as an alias
    assert text == dumps_yaml({"schema": "2.0", "stages": data})


def test_putting_back_what_is_there_changes_nothing() -> None:
    for name, entry in ENTRIES.items():
        assert dvc_lock.spliced(COMMITTED, {name: entry}) == COMMITTED


@pytest.mark.parametrize(
    "stump", ["", "schema: '2.0'\nstages:\n  prepare:\n", LOCK[:-3] + "\n   : x: y", "stages: 3\n"]
)
def test_a_dvc_lock_cut_off_by_a_kill_is_put_back(here: Path, stump: str) -> None:
    (here / "dvc.lock").write_text(stump)
    (here / ".codline/dvc.lock").write_text(LOCK)
    dvc_lock.heal()
    assert (here / "dvc.lock").read_text() == LOCK


def test_a_whole_dvc_lock_is_left_alone(here: Path) -> None:
    (here / "dvc.lock").write_text(LOCK)
    (here / ".codline/dvc.lock").write_text(LOCK.replace("prepare", "other"))
    dvc_lock.heal()
    assert (here / "dvc.lock").read_text() == LOCK
