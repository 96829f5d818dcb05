"""Where MLflow is, and the error for when it cannot be reached. Imports nothing slow."""

import os
from urllib.parse import urlsplit

from codline.core.errors import InfrastructureError


def tracking_uri() -> str:
    """Of Postgres with the driver that codline[postgres] installs: SQLAlchemy's default is another one."""
    address = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    scheme, _, rest = address.partition("://")
    return f"postgresql+psycopg2://{rest}" if scheme in ("postgres", "postgresql") else address


def unreachable(reason: str) -> InfrastructureError:
    password = urlsplit(tracking_uri()).password
    shown = tracking_uri().replace(f":{password}@", ":***@") if password else tracking_uri()
    return InfrastructureError(f"MLflow at {shown} did not answer ({reason}); run `codline track` later")
