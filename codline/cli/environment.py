"""Environment variables of the codline command and of every process that it starts."""

import logging
import os

from codline.runtime.interpreter import put_interpreter_first

NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DVC_NO_ANALYTICS": "true",
}


def set_environment() -> None:
    """Turn telemetry off and put this interpreter first on the path. Call it before Prefect is imported."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)
    put_interpreter_first()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # importing torch without cached bytecode takes four times as long


def silence_stages() -> None:
    """Keep the console for the command's own display; Prefect's server still gets every log line.

    Call it before Prefect is imported.
    """
    os.environ |= {"CODLINE_QUIET": "1", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}
    logging.raiseExceptions = False  # Prefect would report each log line that its server cannot store
