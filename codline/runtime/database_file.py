"""SQLite databases of MLflow and Prefect: migrated as a copy that is renamed once it is complete, set aside if broken.

Their migrations are not transactional: after a kill in one, every later start fails ("duplicate column name").
"""

import logging
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from itertools import count
from math import inf
from pathlib import Path

from codline.core.errors import BusyError, CodlineError, InfrastructureError, StorageError
from codline.core.files import sync
from codline.core.locks import file_lock

Migrate = Callable[[Path], None]  # brings the database in this file, which may be missing, to the current schema
SIDE_FILES = ("-journal", "-wal", "-shm")  # what SQLite keeps next to a database: they belong to its name
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedDatabase(Exception):  # noqa: N818 (handled here)
    """SQLite cannot read all of it."""


def prepare_database(path: Path, package: str, migrate: Migrate, what_is_lost: str) -> None:
    """Create the database, or upgrade it, unless the installed version of `package` has done so before.

    That version is noted in the database, so the usual case takes milliseconds. A database that is damaged or cannot be
    migrated is set aside and replaced by an empty one, with a warning that ends with `what_is_lost`.
    """
    stamp = zlib.crc32(f"{package} {version(package)}".encode()) & 0x7FFFFFFF  # SQLite stores 32 bits with a sign
    if is_ready(path, stamp):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_name(f"{path.name}.lock"), wait=inf):
        if is_ready(path, stamp):  # another process was first
            return
        part = path.with_name(f"{path.name}.part")
        reason = migrate_copy(path, part, migrate) if path.exists() else ""
        if reason or not path.exists():
            create(path, part, migrate)
        write_stamp(part, stamp)
        sync(part)
        if reason:
            broken = set_aside(path)
            sentence = "%s: %s, so it was set aside as %s and an empty one was created; %s"
            logging.getLogger("codline").warning(sentence, path, reason, broken.name, what_is_lost)
        for side_file in side_files(path):  # SQLite would apply them to the new database
            side_file.unlink(missing_ok=True)
        part.replace(path)
        sync(path.parent)


def is_ready(path: Path, stamp: int) -> bool:
    if not path.exists():
        return False
    try:
        return read_stamp(path) == stamp
    except DamagedDatabase:
        return False
    except BusyError:
        return True  # another process is writing, so it can be used


def read_stamp(path: Path) -> int:
    """SQLite's `user_version`, which applications may set. Checks the whole file: milliseconds per 10 MB."""
    try:
        with closing(connect(path)) as database:
            (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if result != "ok":
                raise DamagedDatabase(f"damaged ({result.splitlines()[0]})")
            if database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                raise DamagedDatabase("empty")
            (stamp,) = database.execute("PRAGMA user_version").fetchone()
            return int(stamp)
    except sqlite3.DatabaseError as error:
        raise as_known_error(path, error) from error


def create(path: Path, part: Path, migrate: Migrate) -> None:
    remove_database(part)
    try:
        migrate(part)
    except (CodlineError, OSError):
        raise
    except Exception as error:
        reason = sqlite_reason(error)
        if "disk" in reason or "readonly" in reason or "unable to open" in reason:
            raise StorageError(f"{path}: cannot be created: {reason}; free some space and run it again") from error
        raise InfrastructureError(f"{path}: cannot be created ({reason})") from error


def migrate_copy(path: Path, part: Path, migrate: Migrate) -> str:
    """Write a migrated copy to `part`; returns why it cannot be migrated, if so."""
    remove_database(part)
    try:
        read_stamp(path)
        with closing(connect(path)) as source, closing(sqlite3.connect(part)) as target:
            source.execute("PRAGMA journal_mode = DELETE")  # refused while a server has it open
            source.backup(target)
    except DamagedDatabase as error:
        return str(error)
    except sqlite3.DatabaseError as error:
        raise as_known_error(path, error) from error
    try:
        migrate(part)
    except CodlineError:
        raise
    except Exception as error:
        return f"cannot be upgraded, perhaps because that was interrupted before ({sqlite_reason(error)})"
    return ""


def sqlite_reason(error: Exception) -> str:
    """What SQLite said, from the text of SQLAlchemy's errors or of a traceback; else the last line."""
    text = str(error).strip() or type(error).__name__
    found = re.search(r"sqlite3\.\w+\W\s*(.+)", text)
    return found[1] if found else text.splitlines()[-1]


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)


def as_known_error(path: Path, error: sqlite3.DatabaseError) -> CodlineError | DamagedDatabase:
    code = error.sqlite_errorcode & 0xFF  # the other bits are details
    if code in DAMAGED:
        return DamagedDatabase(f"damaged ({error})")
    if code in BUSY:
        return BusyError(f"{path}: in use by another process ({error}); stop `codline serve` and `codline ui`")
    return StorageError(f"{path}: {error}; check that its disk can be written to and has space")


def write_stamp(path: Path, stamp: int) -> None:
    with closing(connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # so that all of it is in one file
        database.execute(f"PRAGMA user_version = {stamp}")


def set_aside(path: Path) -> Path:
    """Rename a database to the first free name of .broken-1, .broken-2, ..."""
    broken = next(new for n in count(1) if not (new := path.with_name(f"{path.name}.broken-{n}")).exists())
    for old, new in zip((*side_files(path), path), (*side_files(broken), broken), strict=True):
        if old.exists():
            old.replace(new)
    return broken


def refuse_if_open(path: Path) -> None:
    """Raise BusyError if another process has a database open in write-ahead mode, as Prefect's server does."""
    try:
        with closing(connect(path)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        if isinstance(known := as_known_error(path, error), BusyError):
            raise known from error


def database_files(path: Path) -> list[Path]:
    return [file for file in (path, *side_files(path)) if file.exists()]


def remove_database(path: Path) -> None:
    for file in (path, *side_files(path)):
        file.unlink(missing_ok=True)


def side_files(path: Path) -> Iterator[Path]:
    return (path.with_name(path.name + end) for end in SIDE_FILES)
