"""The SQLite database of MLflow, if tracking_uri() is one."""

from pathlib import Path

from codline.runtime.database_file import prepare_database
from codline.tracking.address import tracking_uri

SCHEME = "sqlite:///"


def prepare_mlflow_database() -> None:
    """Create or upgrade the database; nothing happens if MLflow is at a server."""
    if tracking_uri().startswith(SCHEME):
        path = Path(tracking_uri().removeprefix(SCHEME).partition("?")[0])
        prepare_database(path, "mlflow", migrate, "`codline track` logs this campaign again")


def migrate(path: Path) -> None:
    from mlflow.db import upgrade

    assert upgrade.callback is not None, "a command of click is a function"
    upgrade.callback(SCHEME + str(path.absolute()))
