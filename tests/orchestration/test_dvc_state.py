"""DVC's database of file hashes fails with one sentence where DVC would try for ever."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from diskcache import Cache

from codline.core.errors import StorageError
from codline.orchestration import dvc_state


@pytest.fixture(autouse=True)
def stopped_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "_transact", dvc_state.transact)  # restored after the test
    dvc_state.stop_endless_retries()


@pytest.mark.timeout(60)
def test_a_database_that_cannot_be_written_is_a_storage_error_instead_of_an_endless_retry(tmp_path: Path) -> None:
    with (
        Cache(str(tmp_path), timeout=0.05) as cache,
        closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other,
    ):
        cache["known"] = 1
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="cannot be written, or another process has held it"):
            cache.set("new", 2, retry=True)
        assert cache["known"] == 1


def test_transactions_write_as_before(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        with cache.transact(retry=True):
            cache["a"], cache["b"] = 1, 2
        assert (cache["a"], cache["b"]) == (1, 2)
