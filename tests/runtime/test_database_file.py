"""Databases are created and upgraded as a copy; one that is damaged or half migrated is set aside with a sentence."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codline.core.errors import BusyError, StorageError
from codline.runtime import log
from codline.runtime.database_file import SIDE_FILES, prepare_database

STEPS = ("CREATE TABLE runs (id TEXT)", "ALTER TABLE runs ADD COLUMN name TEXT", "CREATE TABLE tags (key TEXT)")
ROWS = 500


class Killed(BaseException):
    """Stands for a process that ends here, without any clean-up."""


def migrate(path: Path, steps: tuple[str, ...] = STEPS, killed_in: int | None = None) -> None:
    """As alembic does on SQLite: a step, then its number; between the two, nothing is rolled back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS version (number INTEGER)")
        (done,) = database.execute("SELECT count(*) FROM version").fetchone()
        for number, step in enumerate(steps[done:], done):
            database.execute(step)
            if number == killed_in:
                raise Killed
            database.execute("INSERT INTO version VALUES (?)", (number,))


def prepare(path: Path, package: str = "mlflow") -> None:
    prepare_database(path, package, migrate, "its runs are lost")


def add_rows(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany("INSERT INTO runs (id) VALUES (?)", [(f"run {n} " * 10,) for n in range(ROWS)])


def row_count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        (count,) = database.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)


@pytest.fixture
def path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A database in use, with rows."""
    log.show_warnings()
    path = tmp_path / "runs.db"
    prepare(path)
    add_rows(path)
    assert capsys.readouterr().err == ""
    return path


def names(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


def test_database_that_is_ready_is_left_as_it_is(path: Path) -> None:
    before = path.stat()
    prepare(path)
    assert path.stat() == before
    assert row_count(path) == ROWS


def test_database_of_another_version_is_upgraded_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    migrate(path, STEPS[:1])
    add_rows(path)
    prepare(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*), count(name) FROM runs").fetchone() == (ROWS, 0)
    assert names(path) == {"runs.db", "runs.db.lock"}


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_kill_in_a_migration_leaves_the_database_as_it_was(path: Path, step: int, tmp_path: Path) -> None:
    """Once for a new database, once for one that is upgraded."""
    for database, content in ((tmp_path / "new.db", None), (path, path.read_bytes())):
        with pytest.raises(Killed):
            prepare_database(database, "prefect", lambda part: half_migrate(part, step), "")
        assert (database.read_bytes() if database.exists() else None) == content
        prepare(database, "prefect")
        assert row_count(database) == (ROWS if content else 0)


def half_migrate(path: Path, step: int) -> None:
    path.unlink(missing_ok=True)
    migrate(path, killed_in=step)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 4095, 4096, 8192, -4097, -4096])
def test_truncated_database_is_set_aside_with_a_sentence(
    path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    content = path.read_bytes()[:size]
    path.write_bytes(content)
    prepare(path)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"codline: {path}: ")
    assert "damaged (" in line or "empty" in line
    assert line.endswith("set aside as runs.db.broken-1 and an empty one was created; its runs are lost")
    assert path.with_name("runs.db.broken-1").read_bytes() == content
    assert row_count(path) == 0


def test_database_of_other_bytes_is_set_aside_with_a_sentence(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"neither SQLite nor anything else" * 1000)
    prepare(path)
    assert "damaged (file is not a database), so it was set aside" in capsys.readouterr().err


def test_database_with_a_damaged_page_is_set_aside_with_a_sentence(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(path.read_bytes())
    content[-4096 * 4 : -4096 * 3] = bytes(range(256)) * 16
    path.write_bytes(content)
    prepare(path)
    assert "damaged (" in capsys.readouterr().err
    assert row_count(path) == 0


def test_half_migrated_database_is_set_aside_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with pytest.raises(Killed):
        migrate(path, killed_in=1)
    prepare(path)
    assert "(duplicate column name: name), so it was set aside as runs.db.broken-1" in capsys.readouterr().err
    assert row_count(path) == 0


def test_second_broken_database_does_not_replace_the_first(path: Path) -> None:
    for content in (b"first", b"second"):
        path.write_bytes(content)
        prepare(path)
    assert path.with_name("runs.db.broken-1").read_bytes() == b"first"
    assert path.with_name("runs.db.broken-2").read_bytes() == b"second"


def test_log_of_a_broken_database_is_not_applied_to_the_new_one(path: Path, tmp_path: Path) -> None:
    """SQLite would take a write-ahead log that is left for that of the database with its name."""
    killed = tmp_path / "killed" / "runs.db"
    killed.parent.mkdir()
    with closing(sqlite3.connect(path)) as server:
        server.execute("PRAGMA journal_mode = WAL")
        assert server.execute("SELECT count(*) FROM runs").fetchone() == (ROWS,)
        add_rows(path)
        shutil.copy(f"{path}-wal", f"{killed}-wal")
    killed.write_bytes(path.read_bytes()[:5000])
    prepare(killed)
    assert row_count(killed) == 0
    assert not {f"runs.db{end}" for end in SIDE_FILES} & names(killed)


def test_database_that_a_server_has_open_is_not_replaced(path: Path) -> None:
    with closing(sqlite3.connect(path)) as server:
        server.execute("PRAGMA journal_mode = WAL")
        assert server.execute("SELECT count(*) FROM runs").fetchone() == (ROWS,)
        prepare(path)
        with pytest.raises(BusyError, match=r"runs\.db: in use by another process"):
            prepare(path, "prefect")  # of which no version is noted, as after an update
        assert row_count(path) == ROWS


def test_database_that_cannot_be_created_anew_stays_where_it_is(path: Path) -> None:
    path.write_bytes(b"broken")

    def fill_the_disk(part: Path) -> None:
        with closing(sqlite3.connect(part)) as database:
            database.execute("PRAGMA max_page_count = 2")
            for step in STEPS:
                database.execute(step)
            raise AssertionError("not full")

    with pytest.raises(StorageError, match=r"runs\.db: cannot be created: database or disk is full; free some space"):
        prepare_database(path, "mlflow", fill_the_disk, "")
    assert path.read_bytes() == b"broken"
    assert "runs.db.broken-1" not in names(path)
