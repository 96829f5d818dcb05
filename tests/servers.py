"""Servers of a team, for tests: Postgres, S3, Prefect and MLflow, each a process that listens on 127.0.0.1."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from tests.project import BIN, free_port

POSTGRES_USER = "postgres"  # made by Debian's package: Postgres refuses to run as root
S3_SERVER = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
SECRET = "team:s3cret-of-prefect"


@contextlib.contextmanager
def running(
    log: Path, *command: str, end: signal.Signals = signal.SIGTERM, user: str | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server with only these settings of Prefect, MLflow and AWS."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_", "AWS_"))}
    telemetry = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "true"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, env=inherited | telemetry | environment, stdout=output, stderr=output, user=user
        )
    try:
        yield process
    finally:
        process.send_signal(end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


def wait_for_url(url: str, process: subprocess.Popen[bytes], log: Path, secret: str = "") -> None:
    headers = {"authorization": f"Basic {b64encode(secret.encode()).decode()}"} if secret else {}
    deadline = time.monotonic() + 180
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(urllib.request.Request(url, headers=headers)):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def postgres_program(name: str) -> str | None:
    places = [str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return shutil.which(name, path=os.pathsep.join([*places, os.environ["PATH"]]))


def has_postgres() -> bool:
    return all(postgres_program(name) for name in ("initdb", "postgres", "createdb"))


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """Yield USER:PASSWORD@HOST:PORT of a new Postgres server with databases `prefect` and `mlflow`."""
    initdb, postgres, createdb = (postgres_program(name) or name for name in ("initdb", "postgres", "createdb"))
    user = POSTGRES_USER if os.geteuid() == 0 else None
    port, password = free_port(), "p4ssword"
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        root = Path(folder)
        (root / "password").write_text(password)
        if user:
            shutil.chown(root, user)
            shutil.chown(root / "password", user)
        options = [f"--pwfile={root / 'password'}", "--auth=scram-sha-256", "--username=codline"]
        initialize = [initdb, "-D", f"{root}/data", *options]
        subprocess.run(initialize, cwd=root, check=True, capture_output=True, user=user)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
        command = [postgres, "-D", f"{root}/data", "-p", str(port), *settings]
        with running(root / "postgres.log", *command, end=signal.SIGQUIT, user=user):  # without waiting for clients
            access = os.environ | {"PGPASSWORD": password}
            for database in ("prefect", "mlflow"):
                create = [createdb, "-h", "127.0.0.1", "-p", str(port), "-U", "codline", database]
                deadline = time.monotonic() + 60
                while subprocess.run(create, env=access, capture_output=True, check=False).returncode:
                    assert time.monotonic() < deadline, (root / "postgres.log").read_text()
                    time.sleep(0.2)
            yield f"codline:{password}@127.0.0.1:{port}"


@contextlib.contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of an S3 server with an empty bucket `results`."""
    port = free_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "team",
        "AWS_SECRET_ACCESS_KEY": "s3cret-of-storage",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    log = folder / "s3.log"
    with running(log, sys.executable, "-c", S3_SERVER, str(port)) as process:
        wait_for_url(f"http://127.0.0.1:{port}/", process, log)
        bucket = "import boto3; boto3.client('s3').create_bucket(Bucket='results')"
        subprocess.run([sys.executable, "-c", bucket], env=os.environ | environment, check=True)
        yield environment


@contextlib.contextmanager
def running_prefect(folder: Path, postgres: str) -> Iterator[dict[str, str]]:
    """Yield the settings with which clients use a Prefect server that demands a secret and stores in Postgres."""
    port, log = free_port(), folder / "prefect.log"
    url = f"http://127.0.0.1:{port}/api"
    settings = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_API_AUTH_STRING": SECRET,
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{postgres}/prefect",
    }
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(log, *command, **settings) as process:
        wait_for_url(f"{url}/health", process, log, SECRET)
        yield {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": SECRET}


@contextlib.contextmanager
def running_mlflow(folder: Path, postgres: str) -> Iterator[str]:
    """Yield the address of an MLflow server that stores in Postgres."""
    port, log = free_port(), folder / "mlflow.log"
    store = ["--backend-store-uri", f"postgresql+psycopg2://{postgres}/mlflow", "--artifacts-destination", str(folder)]
    command = [str(BIN / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *store]
    with running(log, *command, MLFLOW_DISABLE_TELEMETRY="true") as process:
        wait_for_url(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}"
