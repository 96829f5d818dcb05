"""A finished small campaign, made once; every test that asks for a workspace gets its own copy."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from tests.workspace import Workspace, created

# The same examples on every run, and nothing kept in the repository.
settings.register_profile("exact", derandomize=True, database=None, deadline=None, max_examples=50)
settings.load_profile("exact")


def pytest_configure() -> None:
    """Fix threads and instructions before the first tensor is touched: later, torch no longer listens.

    What numpy has to be told, it was told when tests.workspace imported a stage.
    """
    from codline.compute import configure
    from codline.params import Compute

    configure(Compute(device="cpu"))


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a Prefect server or a database of MLflow's is slow: the first such test waits for it, and for the campaign that went through it.

    Each worker begins with its share of what may take longest, so that none is left alone with it at the end: workers get stretches of the list.
    """
    for item in items:
        if {"api", "database"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker("slow")
    if "PYTEST_XDIST_WORKER" in os.environ:
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        ordered = sorted(items, key=patience, reverse=True)
        items[:] = [item for worker in range(workers) for item in ordered[worker::workers]]


def patience(item: pytest.Item) -> tuple[int, bool]:
    limit = item.get_closest_marker("timeout")
    return (limit.args[0] if limit else 0), item.get_closest_marker("slow") is not None


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every stage but report has run. Read only: ask for `workspace` to change something."""
    workspace = created(tmp_path_factory.mktemp("campaign"))
    with contextlib.chdir(workspace.root):
        for name in workspace.wiring.names():
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
