"""A real Prefect server, and one small campaign that was really run through it."""

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
    """Two cycles, run by `codline run`, MLflow and all. Read only: ask for `project` to change something."""
    project = cloned(tmp_path_factory.mktemp("clone") / "codline", **api)
    project.must("codline", "run")
    return project


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    return finished.copied(tmp_path / "codline")


@pytest.fixture
def untouched(api: dict[str, str], tmp_path: Path) -> Project:
    return cloned(tmp_path / "codline", **api, CODLINE_TRACKING="off")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two workers share the flows between them by file, so that each server and each finished campaign is made once or twice, not for every test."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("served" if item.path.stem in ("test_readme", "test_deployments") else "run"))
