"""Notes that others may read at any instant."""

from pathlib import Path

import pytest

from codline.runtime import state_directory
from codline.runtime.progress import bar


@pytest.fixture(autouse=True)
def corner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODLINE_SCRATCH", str(tmp_path / "corner"))
    return tmp_path / "corner"


def test_a_note_can_be_read_replaced_and_taken_away() -> None:
    assert state_directory.read_note("error", "train@c1") is None
    for value in ({"sentence": "one"}, {"sentence": "two"}):
        state_directory.note("error", "train@c1", value)
        assert state_directory.read_note("error", "train@c1") == value
    state_directory.note("error", "train@c1", None)
    state_directory.note("error", "train@c1", None)
    assert state_directory.read_note("error", "train@c1") is None


def test_a_note_that_is_half_written_is_no_note(corner: Path) -> None:
    (corner / "progress").mkdir(parents=True)
    (corner / "progress" / "train@c1.json").write_text('{"done": ')
    assert state_directory.read_note("progress", "train@c1") is None


def test_progress_is_noted_as_it_is_made() -> None:
    with bar("train@c1", "epoch", 3) as advance:
        advance(2, curve=[1])
        assert state_directory.read_note("progress", "train@c1") == {
            "unit": "epoch",
            "done": 2,
            "total": 3,
            "curve": [1],
        }
