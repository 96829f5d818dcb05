"""Prefect and MLflow store in a real Postgres, where one is installed."""

import re
import time
import urllib.request
from collections.abc import Iterator

import psycopg2
import pytest

from tests.project import Project
from tests.servers import has_postgres, running_postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not has_postgres(), reason="Postgres is not installed"),
]


@pytest.fixture
def postgres() -> Iterator[str]:
    with running_postgres() as address:
        yield address


def statuses(address: str, query: str) -> list[str]:
    with psycopg2.connect(f"postgresql://{address}") as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return sorted(row[0] for row in cursor.fetchall())


def test_postgres_is_the_store_of_track_run_and_ui(project: Project, postgres: str) -> None:
    settings = {
        "CODLINE_TRACKING": "on",
        "MLFLOW_TRACKING_URI": f"postgresql://{postgres}/mlflow",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{postgres}/prefect",
    }
    project.without_given_server().environment |= settings
    project.must("codline", "track")
    runs = "select status from runs where lifecycle_stage = 'active'"
    assert statuses(f"{postgres}/mlflow", runs) == ["FINISHED"] * 3

    project.must("codline", "run", "-S", "report.gallery=4")
    assert statuses(f"{postgres}/prefect", "select state_type::text from flow_run") == ["COMPLETED"] * 3
    assert not (project.root / ".prefect/prefect.db").exists()
    assert statuses(f"{postgres}/mlflow", runs) == ["FINISHED"] * 3

    pages = project.start("codline", "ui")
    try:
        deadline = time.monotonic() + 200
        while not (found := re.search(r"MLflow: +(\S+)\nPrefect: (\S+)\n", project.output)):
            assert pages.poll() is None, project.output
            assert time.monotonic() < deadline, project.output
            time.sleep(0.2)
        for address in found.groups():
            with urllib.request.urlopen(address, timeout=30) as reply:
                assert reply.status == 200
    finally:
        pages.terminate()
        pages.wait(60)
