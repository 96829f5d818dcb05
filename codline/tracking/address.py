"""Where MLflow is, and what to say when it is not there. Imports nothing slow."""

import os
from urllib.parse import urlsplit

from codline.core.errors import InfrastructureError


def address() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def unanswered(reason: str) -> InfrastructureError:
    password = urlsplit(address()).password
    shown = address().replace(f":{password}@", ":***@") if password else address()
    return InfrastructureError(f"MLflow at {shown} did not answer ({reason}); run `codline track` later")
