"""A real Prefect server, and one small campaign that was really run through it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.project import Project, cloned, free_port, once, warmed


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
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One warm process for the projects of all tests that are not about it: three quarters of a small campaign's time are imports."""
    with warmed(tmp_path_factory.mktemp("warm") / "door") as environment:
        yield environment


@pytest.fixture(scope="session")
def finished(api: dict[str, str], warm: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two cycles, run by `codline run`, MLflow and all. Read only: ask for `project` to change something. One for all workers."""

    def make(folder: Path) -> None:
        cloned(folder / "codline", **api).must("codline", "run")

    return Project(once(tmp_path_factory, "finished", make) / "codline", **api, **warm)


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """What happens here is not told to MLflow."""
    copy = finished.copied(tmp_path / "codline")
    copy.environment["CODLINE_TRACKING"] = "off"
    return copy


@pytest.fixture
def untouched(alone: Project, warm: dict[str, str]) -> Project:
    alone.environment |= warm
    return alone


@pytest.fixture
def alone(api: dict[str, str], tmp_path: Path) -> Project:
    """As `untouched`, but a flow that runs there has a warm process of its own, as it has for a user."""
    return cloned(tmp_path / "codline", **api, CODLINE_TRACKING="off")
