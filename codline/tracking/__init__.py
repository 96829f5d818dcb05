"""MLflow as a projection of the campaign's files: one run per campaign, one nested run per cycle, however often it is told.

Stages do not wait for MLflow's import, and do not fail with it: a follower runs beside them, and what it could not log, `sync` fills in from the files.
"""

import os

# Read when mlflow is imported.
DEFAULTS = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",
}
for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)
