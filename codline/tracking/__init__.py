"""MLflow: one run per campaign and one nested run per cycle, logged from the campaign's files any number of times.

Stages neither import mlflow nor fail with it: a follower process logs while they run (follower.py), and
`codline track` logs whatever is missing (sync.py).
"""

import os

# mlflow reads these when it is imported.
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
