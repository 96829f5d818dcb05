"""Prepares the clone of a commit that Prefect has made on a machine of a work pool, for a campaign to run in it."""

import os
from pathlib import Path

from dvc.repo import Repo
from ruamel.yaml import YAML

from codline.core.errors import InfrastructureError
from codline.core.files import write_text
from codline.orchestration.dvc_lock import LOCK
from codline.orchestration.params_file import PARAMS
from codline.orchestration.remote_results import RemoteResults
from codline.orchestration.site_cache import configure_site_cache
from codline.runtime.background import is_tracking
from codline.runtime.interpreter import check_libraries, put_interpreter_first
from codline.runtime.lock_entries import run_key, write_entry

STARTS = 3  # of a flow run whose machine or process is lost each time


def prepare_clone(params: str | None, starts: int) -> None:
    """`params`: a params.yaml for the one of the commit; `starts`: how often this flow run has been started."""
    if starts > STARTS:
        raise InfrastructureError(f"it was killed {STARTS} times, perhaps for lack of memory, so it is not run again")
    put_interpreter_first()
    check_libraries(Path("requirements.lock"))
    configure_site_cache(Path())
    if is_tracking() and "MLFLOW_TRACKING_URI" not in os.environ:
        os.environ["CODLINE_TRACKING"] = "off"  # MLflow's database would go with the clone
    if params is not None:
        write_text(PARAMS, params)
    with Repo() as repo:
        forget_lock(RemoteResults(repo).runs)
        if files := [str(path) for path in Path().rglob("*.dvc") if path.is_file()]:
            with RemoteResults(repo).errors():
                repo.pull(files)  # the user's own images, added with `dvc add`


def forget_lock(runs: Path) -> None:
    """Remove the commit's dvc.lock: its outputs are not here. Its entries become past runs, to be restored."""
    if LOCK.exists():
        add_past_runs(LOCK.read_text(encoding="utf-8"), runs)
        LOCK.unlink()


def add_past_runs(lock: str, runs: Path) -> list[str]:
    """Add the entries of a dvc.lock to the run cache; returns the hashes of their outputs."""
    entries = YAML(typ="safe").load(lock)["stages"].values()
    for entry in entries:
        write_entry(runs, run_key(entry), entry)
    return [out["md5"] for entry in entries for out in entry["outs"]]
