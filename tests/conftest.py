"""Fixtures: a small campaign run as functions, a real Prefect server, and a small project run through it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.project import Project, clone_with_small_campaign, make_once, running_fork_server
from tests.workspace import Workspace, create_workspace

# The same examples on every run, and nothing kept in the repository.
settings.register_profile("exact", derandomize=True, database=None, deadline=None, max_examples=50)
settings.load_profile("exact")


def pytest_configure() -> None:
    """Set threads and instructions before the first tensor operation: torch reads them once.

    numpy's are pinned by codline.data, which tests.workspace has imported.
    """
    from codline.core.params import Compute
    from codline.learning.compute import configure

    configure(Compute(device="cpu"))


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a Prefect server or an MLflow database as slow, and start with the longest tests.

    xdist gives each worker a chunk of the list, so each chunk begins with its share of the longest.
    """
    for item in items:
        if {"api", "database"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker("slow")
    if "PYTEST_XDIST_WORKER" in os.environ:
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        ordered = sorted(items, key=sort_key, reverse=True)
        items[:] = [item for worker in range(workers) for item in ordered[worker::workers]]


def sort_key(item: pytest.Item) -> tuple[int, bool]:
    limit = item.get_closest_marker("timeout")
    return (limit.args[0] if limit else 0), item.get_closest_marker("slow") is not None


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of which every stage but report has run. Read only; `workspace` is a copy."""
    workspace = create_workspace(tmp_path_factory.mktemp("campaign"))
    with contextlib.chdir(workspace.root):
        for name in workspace.pipeline.stage_names():
            stage, _, cycle = name.partition("@")
            if stage != "report":
                workspace.run(stage, cycle or None)
    return workspace.root


@pytest.fixture
def workspace(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of the campaign, without its checkpoints, as the current directory."""
    shutil.copytree(campaign, tmp_path / "campaign", ignore=shutil.ignore_patterns(".codline"))
    monkeypatch.chdir(tmp_path / "campaign")
    monkeypatch.setenv("CODLINE_TRACKING", "off")
    return Workspace(tmp_path / "campaign")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server that runs as long as the tests do. Projects use it as one they are given."""
    home = tmp_path_factory.mktemp("prefect")
    environment = {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for key, value in environment.items():
            patch.setenv(key, value)
        from codline.orchestration.prefect_server import local_server

        with contextlib.chdir(home):
            url = stack.enter_context(local_server())
        yield environment | {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": os.environ["PREFECT_API_AUTH_STRING"]}
        with contextlib.chdir(home):
            stack.close()


@pytest.fixture(scope="session")
def fork_server_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One fork server for the projects of all tests: most of a small campaign's time is imports."""
    with running_fork_server(tmp_path_factory.mktemp("fork-server") / "socket") as environment:
        yield environment


@pytest.fixture(scope="session")
def finished(
    api: dict[str, str], fork_server_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """Two cycles, run by `codline run`, logged to MLflow. Read only (`project` is a copy); for all test workers."""

    def make(folder: Path) -> None:
        clone_with_small_campaign(folder / "codline", **api).must("codline", "run")

    return Project(make_once(tmp_path_factory, "finished", make) / "codline", **api, **fork_server_environment)


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A copy of `finished` that does not log to MLflow."""
    copy = finished.copy_to(tmp_path / "codline")
    copy.environment["CODLINE_TRACKING"] = "off"
    return copy


@pytest.fixture
def untouched(alone: Project, fork_server_environment: dict[str, str]) -> Project:
    """A fresh clone, with the fork server of the tests."""
    alone.environment |= fork_server_environment
    return alone


@pytest.fixture
def alone(api: dict[str, str], tmp_path: Path) -> Project:
    """A fresh clone in which campaigns start fork servers of their own, as they do for a user."""
    return clone_with_small_campaign(tmp_path / "codline", **api, CODLINE_TRACKING="off")
