"""`codline clean` lists what grows and removes it on request, never results that a dvc.lock names."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codline.core.errors import BusyError, DataError, UserError
from codline.core.locks import file_lock
from codline.orchestration.worktrees import git
from tests.project import Project

ALL = ("cache", "studies", "prefect", "mlflow", "checkpoints", "plots", "broken")


def clean(project: Project, *names: str) -> dict[str, str]:
    """{name: size that was removed}"""
    lines = project.must("codline", "clean", *names).splitlines()
    return dict(line.removesuffix(" removed").split(": ") for line in lines)


def cached_files(project: Project) -> set[Path]:
    return {path for path in (project.root / ".dvc/cache/files").rglob("*") if path.is_file()}


def run_entries(project: Project) -> int:
    return len(list((project.root / ".dvc/cache/runs").glob("*/*/*")))


def report_with(project: Project, images: int) -> None:
    """Change a parameter of the report alone, and make it again."""
    path = project.root / "params.yaml"
    before = project.must("git", "show", "HEAD:params.yaml")
    path.write_text(before.replace("gallery: 36", f"gallery: {images}"))
    assert path.read_text() != before
    project.must("dvc", "repro", "--single-item", "report")


def add_study_point(project: Project) -> Path:
    """A worktree with the dvc.lock of now, as a point of a study has one."""
    folder = project.root / ".codline/studies/tiny/random-s0"
    git("worktree", "add", "--quiet", "--detach", str(folder), at=project.root)
    shutil.copy(project.root / "dvc.lock", folder / "dvc.lock")
    return folder


@pytest.fixture
def own_server(project: Project) -> Project:
    """Its Prefect server would have its database in the project."""
    project.environment["PREFECT_HOME"] = str(project.root / ".prefect")
    return project


def test_clean_without_names_lists_sizes_and_removes_nothing(own_server: Project) -> None:
    (own_server.root / "dvc_plots").mkdir()
    (own_server.root / "dvc_plots/index.html").write_bytes(bytes(12_300))
    (own_server.root / "mlflow.db.broken-1").write_bytes(bytes(4_500))
    before = sorted(own_server.root.rglob("*"))
    listed = own_server.must("codline", "clean")
    rows = {cells[1].strip(): cells[2:] for line in listed.splitlines() if len(cells := line.split("│")) > 4}
    assert {*ALL} <= rows.keys()
    sizes = {name: (rows[name][0].strip(), rows[name][1].strip()) for name in ALL}
    assert sizes["plots"] == ("12.3 kB", "12.3 kB")
    assert sizes["broken"] == ("4.5 kB", "4.5 kB")
    assert sizes["cache"][0].endswith(("kB", "MB"))
    assert sizes["cache"][1] == sizes["mlflow"][1] == sizes["studies"][1] == ""
    assert set(before) <= set(own_server.root.rglob("*"))


@pytest.mark.timeout(400)
def test_clean_of_everything_keeps_what_a_dvc_lock_names(own_server: Project) -> None:
    project = own_server
    project.must("git", "add", "--force", "dvc.lock")
    project.must("git", "commit", "-qm", "results")
    project.must("git", "branch", "kept")
    committed = cached_files(project)
    report_with(project, 7)
    of_study = cached_files(project) - committed
    point = add_study_point(project)
    report_with(project, 8)
    unnamed = cached_files(project) - committed - of_study
    report_with(project, 9)
    now = cached_files(project) - committed - of_study - unnamed
    assert of_study
    assert unnamed
    assert now
    entries = run_entries(project)

    removed = clean(project, *ALL)
    assert removed["cache"] != "0 bytes"
    assert cached_files(project) == committed | of_study | now
    assert run_entries(project) == entries - 1
    assert not point.exists()
    assert str(point) not in project.must("git", "worktree", "list")

    assert "Everything is up to date." in project.must("codline", "status")
    assert "Everything is up to date." in project.must("codline", "run")
    assert "up to date" in project.must("dvc", "status")
    shutil.rmtree(project.root / "report")
    project.must("dvc", "checkout")
    assert (project.root / "report/index.html").exists()

    clean(project, "cache")
    assert cached_files(project) == committed | now, "the worktree of the study is gone"
    project.must("git", "checkout", "--quiet", "kept", "--", "dvc.lock", "params.yaml")
    project.must("dvc", "checkout")
    assert "up to date" in project.must("dvc", "status")
    report_with(project, 8)
    assert "up to date" in project.must("dvc", "status")


def test_clean_keeps_results_of_stages_that_params_yaml_no_longer_has(project: Project) -> None:
    """dvc.lock names them until the next run; `dvc gc` would remove them."""
    params = project.root / "params.yaml"
    fewer = [line for line in params.read_text().splitlines() if not line.strip().startswith("c2:")]
    params.write_text("\n".join(line for line in fewer if not line.strip().startswith("c1: {prev: init, ")))
    params.write_text(params.read_text().replace("queries:", "queries: {}") + "\n")
    before = cached_files(project)
    clean(project, "cache")
    assert cached_files(project) == before


def test_clean_refuses_if_the_list_of_a_directory_is_damaged(project: Project) -> None:
    """Otherwise its files would seem unused."""
    listings = (project.root / ".dvc/cache/files").rglob("*.dir")
    (listing,) = (path for path in listings if b"index.html" in path.read_bytes())
    content = listing.read_bytes()
    listing.unlink()
    listing.write_bytes(content.replace(b"index.html", b"index.htm_"))
    before = cached_files(project)
    done = project.run("codline", "clean", "cache")
    assert done.returncode == DataError.exit_code
    assert "damaged, so it cannot be told what is unused; run `codline verify --repair` first" in done.stderr
    assert cached_files(project) == before


def test_clean_mlflow_removes_artifacts_of_deleted_and_unknown_runs_alone(finished: Project, tmp_path: Path) -> None:
    project = finished.copy_to(tmp_path / "codline")
    with closing(sqlite3.connect(project.root / "mlflow.db")) as database, database:
        runs = [row[0] for row in database.execute("SELECT run_uuid FROM runs ORDER BY run_uuid")]
        models = [row[0] for row in database.execute("SELECT model_id FROM logged_models ORDER BY model_id")]
        database.execute("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", runs[:1])
        database.execute("UPDATE logged_models SET lifecycle_stage = 'deleted' WHERE model_id = ?", models[:1])
    artifacts = project.root / "mlartifacts"
    unknown = artifacts / ("0" * 32)
    unknown.mkdir()
    (artifacts / "notes of a user").mkdir()
    originals = sorted((finished.root / "mlartifacts").rglob("*"))
    clean(project, "mlflow")
    assert not unknown.exists()
    assert {path.name for path in artifacts.iterdir()} == {*runs[1:], "models", "notes of a user"}
    assert {path.name for path in (artifacts / "models").iterdir()} == {*models[1:]}
    assert sorted((finished.root / "mlartifacts").rglob("*")) == originals, "MLflow has the paths of the original"

    unknown.mkdir()
    (project.root / "mlflow.db.broken-1").write_bytes(b"perhaps with this run")
    clean(project, "mlflow")
    assert unknown.exists()


def test_clean_refuses_while_something_runs(own_server: Project) -> None:
    project, plots = own_server, own_server.root / "dvc_plots"
    plots.mkdir()
    (project.root / ".codline/studies/tiny").mkdir(parents=True)
    sentences = {
        ".codline/campaign.lock": "another campaign (process unknown) is running in this directory",
        ".codline/studies/tiny/lock": "study tiny is running",
        ".dvc/tmp/lock": "another DVC command (process ",
    }
    for lock, sentence in sentences.items():
        with file_lock(project.root / lock):
            done = project.run("codline", "clean", "plots")
        assert done.returncode == BusyError.exit_code
        assert done.stderr.startswith(f"codline: {sentence}")
        assert len(done.stderr.splitlines()) == 1
    assert plots.exists()


def test_clean_refuses_to_remove_the_database_of_a_running_server(own_server: Project) -> None:
    path = own_server.root / ".prefect/prefect.db"
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as server:
        server.execute("PRAGMA journal_mode = WAL")
        server.execute("CREATE TABLE flow_run (id TEXT)")
        done = own_server.run("codline", "clean", "prefect")
        assert done.returncode == BusyError.exit_code
        assert "prefect.db: in use by another process" in done.stderr
        assert path.exists()
    clean(own_server, "prefect")
    assert not list(path.parent.glob("prefect.db*"))


def test_clean_leaves_a_cache_that_others_may_share(project: Project, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shutil.move(project.root / ".dvc/cache", shared)
    project.must("dvc", "cache", "dir", "--local", str(shared))
    (shared / "files/md5/00").mkdir(exist_ok=True)
    other = shared / "files/md5/00" / ("0" * 30)
    other.write_bytes(b"of another project")
    clean(project, "cache")
    assert other.exists()


def test_clean_refuses_an_unknown_name_and_a_foreign_directory(project: Project, tmp_path: Path) -> None:
    done = project.run("codline", "clean", "cash")
    assert done.returncode == UserError.exit_code
    assert done.stderr == (
        "codline: codline clean cash: expected one or more of cache, studies, prefect, mlflow, checkpoints, plots,"
        " broken\n"
    )
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for words in ([], ["plots"]):
        done = Project(foreign).with_environment(PYTHONPATH=str(project.root)).run("codline", "clean", *words)
        assert done.returncode == UserError.exit_code
        assert len(done.stderr.splitlines()) == 1
    assert list(foreign.iterdir()) == []
