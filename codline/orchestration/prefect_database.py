"""The SQLite database of the local Prefect server."""

import os
import subprocess
import sys
from pathlib import Path

from codline.core.errors import InfrastructureError
from codline.runtime.database_file import prepare_database

SCHEME = "sqlite+aiosqlite:///"
URL = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


def prepare_prefect_database() -> None:
    """Create or upgrade the database that the server is about to use; nothing happens if it is not a SQLite file."""
    path = database_path()
    if path is not None:
        prepare_database(path, "prefect", migrate, "Prefect's list of earlier runs is in the former")


def database_path() -> Path | None:
    from prefect.settings import Settings

    url = Settings().server.database.connection_url  # of the environment of now, as the server reads it
    address = url.get_secret_value() if url else ""
    is_file = address.startswith(SCHEME) and ":memory:" not in address
    return Path(address.removeprefix(SCHEME).partition("?")[0]) if is_file else None


def migrate(path: Path) -> None:
    """In a process of its own: the server's modules take a second to import and a database's engine is per process."""
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    environment = os.environ | {URL: SCHEME + str(path.absolute())}
    environment.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)  # the former name of the same setting
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        raise InfrastructureError(f"the process that creates Prefect's database was killed ({done.returncode})")
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout or f"exit code {done.returncode}")
