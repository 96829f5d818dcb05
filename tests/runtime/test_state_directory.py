"""Notes of the state directory, and progress notes."""

import time
from pathlib import Path

import pytest

from codline.runtime import state_directory
from codline.runtime.progress import progress_bar


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path / "state"))
    return tmp_path / "state"


def test_notes_can_be_read_replaced_and_deleted() -> None:
    assert state_directory.read_note("error", "train@c1") is None
    for value in ({"sentence": "one"}, {"sentence": "two"}):
        state_directory.write_note("error", "train@c1", value)
        assert state_directory.read_note("error", "train@c1") == value
    state_directory.delete_note("error", "train@c1")
    state_directory.delete_note("error", "train@c1")
    assert state_directory.read_note("error", "train@c1") is None


def test_read_note_ignores_a_damaged_note(root: Path) -> None:
    (root / "progress").mkdir(parents=True)
    (root / "progress" / "train@c1.json").write_text('{"done": ')
    assert state_directory.read_note("progress", "train@c1") is None


def test_progress_bar_writes_progress_notes() -> None:
    before = time.time()
    with progress_bar("train@c1", "epoch", 3) as advance:
        advance(2, curve=[1])
        note = state_directory.read_note("progress", "train@c1") or {}
        assert before <= note.pop("started") <= time.time()
        assert note == {"unit": "epoch", "done": 2, "total": 3, "workers": 1, "curve": [1]}
