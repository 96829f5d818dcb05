"""Prefect's database: one that is broken is set aside, and the server starts with an empty one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codline.orchestration import prefect_database


def test_half_migrated_database_is_set_aside_and_the_next_start_is_quick(
    api: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "prefect.db"
    with closing(sqlite3.connect(f"{api['PREFECT_HOME']}/prefect.db")) as used, closing(sqlite3.connect(path)) as copy:
        used.backup(copy)
    with closing(sqlite3.connect(path)) as database, database:
        (head,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
        database.execute("UPDATE alembic_version SET version_num = '9725c1cbee35'")  # Prefect's first
        database.execute("PRAGMA user_version = 0")
    monkeypatch.setattr(prefect_database, "database_path", lambda: path)
    prefect_database.prepare_prefect_database()
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "already exists), so it was set aside as prefect.db.broken-1" in warning
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == (head,)
        assert database.execute("SELECT count(*) FROM flow_run").fetchone() == (0,)

    def refuse(path: Path) -> None:
        raise AssertionError("migrated again")

    monkeypatch.setattr(prefect_database, "migrate", refuse)
    prefect_database.prepare_prefect_database()


def test_database_is_the_file_that_the_settings_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert prefect_database.database_path() == tmp_path / "prefect.db"
    monkeypatch.setenv(prefect_database.URL, "sqlite+aiosqlite:///runs.db?timeout=60")
    assert prefect_database.database_path() == Path("runs.db")
    for other in ("sqlite+aiosqlite:///:memory:", "postgresql+asyncpg://user:secret@host/prefect"):
        monkeypatch.setenv(prefect_database.URL, other)
        assert prefect_database.database_path() is None
