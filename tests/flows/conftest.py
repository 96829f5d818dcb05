"""A real Prefect server, and one small campaign that was really run through it."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.project import Project, cloned, free_port


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server that runs as long as the tests do."""
    home = tmp_path_factory.mktemp("prefect")
    environment = {
        "PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api",
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment.items():
            patch.setenv(key, value)
        from flows import server

        patch.setattr(server, "url", lambda: environment["PREFECT_API_URL"])
        with server.local():
            yield environment


@pytest.fixture(scope="session")
def finished(api: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two cycles, run by `codline run`, MLflow and all. Read only: ask for `project` to change something. One for all workers."""
    here = tmp_path_factory.getbasetemp()
    shared = here.parent if "PYTEST_XDIST_WORKER" in os.environ else here
    with (shared / "finished.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (shared / "finished.done").exists():
            cloned(shared / "finished/codline", **api).must("codline", "run")
            (shared / "finished.done").touch()
    return Project(shared / "finished/codline", **api)


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    return finished.copied(tmp_path / "codline")


@pytest.fixture
def untouched(api: dict[str, str], tmp_path: Path) -> Project:
    return cloned(tmp_path / "codline", **api, CODLINE_TRACKING="off")
