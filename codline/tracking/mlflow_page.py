"""MLflow's page on loopback, for whoever knows the token that `codline ui` prints.

python -m codline.tracking.mlflow_page LISTENER LANDING: the file descriptor of a listening socket and the page to show
first. The token is in the environment, because other users can see arguments.
"""

import os
import socket
import sys

from codline.runtime.loopback import LOOPBACK
from codline.runtime.process_lifetime import end_with_parents
from codline.tracking.address import tracking_uri
from codline.tracking.database import prepare_mlflow_database

TOKEN = "CODLINE_MLFLOW_TOKEN"


def run_page(listener: socket.socket, landing: str) -> None:
    end_with_parents()
    port, token = listener.getsockname()[1], os.environ.pop(TOKEN)
    os.environ |= {  # read when mlflow.server is imported; a second line of defence behind the guard
        "MLFLOW_SERVER_ALLOWED_HOSTS": f"{LOOPBACK}:{port},localhost:{port}",
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"http://{LOOPBACK}:{port}",
    }
    prepare_mlflow_database()
    import uvicorn
    from mlflow.server import constants, handlers

    os.environ |= {  # as `mlflow ui` does
        constants.BACKEND_STORE_URI_ENV_VAR: tracking_uri(),
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: "./mlartifacts",
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    handlers.initialize_backend_stores(tracking_uri(), tracking_uri(), "mlflow-artifacts:/")
    from mlflow.server.fastapi_app import app

    from codline.runtime.server_guard import ServerGuard, TokenLogin

    guarded = ServerGuard(TokenLogin(app, port, token, landing), port)
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="error", timeout_graceful_shutdown=1))
    server.run(sockets=[listener])


if __name__ == "__main__":
    run_page(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
