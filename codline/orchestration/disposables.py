"""What grows in a workspace and can be removed without losing the campaign: listed and removed by `codline clean`."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from codline.core.errors import InfrastructureError
from codline.core.files import remove
from codline.core.locks import file_lock
from codline.orchestration.cache_usage import unused_cache_files
from codline.orchestration.prefect_database import database_path
from codline.orchestration.worktrees import remove_worktree
from codline.runtime import database_file
from codline.runtime.state_directory import state_root

MLFLOW_DATABASE, MLFLOW_ARTIFACTS = Path("mlflow.db"), Path("mlartifacts")


@dataclass(frozen=True)
class Disposable:
    """A kind of files, named on the command line."""

    name: str
    places: tuple[str, ...]  # where they are, among files that stay
    what: str
    cost: str  # what removing them costs
    find: Callable[[], list[Path]]  # files and directories
    remove: Callable[[list[Path]], None]


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        remove(path)


def study_folders() -> list[Path]:
    return sorted(path for path in (state_root() / "studies").glob("*") if path.is_dir())


def study_worktrees() -> list[Path]:
    return [path.parent for folder in study_folders() for path in sorted(folder.glob("*/.git"))]


def remove_worktrees(folders: list[Path]) -> None:
    for folder in folders:
        remove_worktree(folder)


def prefect_files() -> list[Path]:
    """Of the workspace's own server: another one may be shared."""
    path = database_path()
    is_here = path is not None and path.resolve().is_relative_to(Path.cwd())
    return database_file.database_files(path) if path is not None and is_here else []


def remove_prefect_files(files: list[Path]) -> None:
    for path in files:
        if path.suffix == ".db":
            database_file.refuse_if_open(path)
    remove_all(files)


def mlflow_leftovers() -> list[Path]:
    """Artifacts of runs and models that were deleted, or that no database has, not even one that was set aside.

    Not by `mlflow gc`: it removes the folders at their absolute paths, in a copied workspace those of the original.
    """
    if os.environ.get("MLFLOW_TRACKING_URI") or not MLFLOW_ARTIFACTS.exists():  # elsewhere, or at a server
        return []
    runs = (path for path in MLFLOW_ARTIFACTS.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    models = (MLFLOW_ARTIFACTS / "models").glob("m-*")
    stages, unknown = lifecycle_stages(), "active" if list(Path().glob("mlflow.db.broken-*")) else "deleted"
    return sorted(path for path in (*runs, *models) if stages.get(path.name, unknown) == "deleted")


def lifecycle_stages() -> dict[str, str]:
    """{id of a run or model: active or deleted}"""
    if not MLFLOW_DATABASE.exists():
        return {}
    query = "SELECT run_uuid, lifecycle_stage FROM runs UNION SELECT model_id, lifecycle_stage FROM logged_models"
    try:
        with contextlib.closing(database_file.connect(MLFLOW_DATABASE)) as database:
            return dict(database.execute(query))
    except sqlite3.DatabaseError as error:
        raise InfrastructureError(f"{MLFLOW_DATABASE}: {error}; run `codline track`, which repairs it") from error


def checkpoints() -> list[Path]:
    return sorted(path for kind in ("checkpoints", "passes") for path in (state_root() / kind).glob("*"))


def plots() -> list[Path]:
    return sorted(Path().glob("dvc_plots"))


def broken_databases() -> list[Path]:
    return [path for folder in (Path(), Path(".prefect")) for path in sorted(folder.glob("*.db.broken-*"))]


# In the order in which they are removed: while the worktrees of studies are there, the cache keeps their results.
DISPOSABLES = (
    Disposable(
        "cache",
        (".dvc/cache",),
        "results in DVC's cache that no dvc.lock, branch, tag or experiment names",
        "going back to earlier parameters computes them again",
        unused_cache_files,
        remove_all,
    ),
    Disposable(
        "studies",
        (".codline/studies",),
        "worktrees of the points of studies",
        "models and reports of points, which stay in DVC's cache until it is cleaned again; tables and figures stay",
        study_worktrees,
        remove_worktrees,
    ),
    Disposable(
        "prefect",
        (".prefect",),
        "Prefect's database of runs",
        "the list of earlier runs on its page; its next start takes some seconds longer",
        prefect_files,
        remove_prefect_files,
    ),
    Disposable(
        "mlflow",
        ("mlartifacts", "mlflow.db"),
        "artifacts of runs and models that were deleted or replaced in MLflow",
        "deleted runs cannot be restored with their artifacts",
        mlflow_leftovers,
        remove_all,
    ),
    Disposable(
        "checkpoints",
        (".codline/checkpoints", ".codline/passes"),
        "states of trainings, and of passes over images, that were interrupted",
        "these trainings and passes start from their beginning",
        checkpoints,
        remove_all,
    ),
    Disposable(
        "plots", ("dvc_plots",), "pages of `dvc plots`", "`dvc plots show` writes them again", plots, remove_all
    ),
    Disposable(
        "broken",
        (),
        "databases that were set aside",
        "what could still be read from them",
        broken_databases,
        remove_all,
    ),
)


@contextlib.contextmanager
def lock_studies_and_dvc() -> Iterator[None]:
    """Raise BusyError if a study or a DVC command runs, and let none begin."""
    dvc = "another DVC command (process {owner}) is running; wait for it or stop it"
    studies = {folder / "lock": f"study {folder.name} is running; wait for it or stop it" for folder in study_folders()}
    with contextlib.ExitStack() as locks:
        for path, busy in {**studies, Path(".dvc/tmp/lock"): dvc}.items():
            locks.enter_context(file_lock(path, busy))
        yield


def freed_bytes(paths: list[Path]) -> int:
    """What removing them frees: of a file with another link, as worktrees and the cache share them, nothing."""
    return sum(state.st_size for state in file_states(paths) if state.st_nlink == 1)


def total_bytes(disposable: Disposable) -> int:
    """Of everything in the places of a disposable."""
    return sum(state.st_size for state in file_states([Path(place) for place in disposable.places]))


def file_states(paths: list[Path]) -> Iterator[os.stat_result]:
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else (path,)))
    return (file.lstat() for file in files if file.is_file() and not file.is_symlink())
