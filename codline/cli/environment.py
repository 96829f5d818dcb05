"""The environment of everything that we start: no telemetry, this interpreter first on the path, the project's own Prefect home."""

import os
import sys
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DVC_NO_ANALYTICS": "true",
}


def prepare() -> None:
    """Call before prefect is imported: it reads its settings then."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    here = str(Path(sys.executable).parent)
    if not os.environ.get("PATH", "").startswith(here):
        os.environ["PATH"] = f"{here}{os.pathsep}{os.environ.get('PATH', '')}"  # dvc.yaml says `python`: this one
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # importing torch without cached bytecode takes four times as long
