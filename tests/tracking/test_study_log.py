"""Points of a study in MLflow: one finished run each, with the curves that a campaign's run has."""

import io
import json
import socket

import mlflow
import pytest

from codline.tracking.study_log import log_points
from tests.tracking.mlflow_view import sync_cycles
from tests.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import
TAGS = {"codline.study.tiny": "random", "codline.seed": "0"}


def log(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"directory": str(workspace.root), "tags": TAGS})
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))
    log_points()


def test_point_is_one_finished_run_with_the_curves_of_the_campaign(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracked.run("report")
    for _ in range(2):  # logging twice changes nothing
        log(tracked, monkeypatch)
        (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert capsys.readouterr().err == ""
    assert run.info.status == "FINISHED"
    assert run.data.tags.items() >= TAGS.items()
    client = mlflow.MlflowClient()
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"params.yaml", "report"}
    assert len(run.inputs.dataset_inputs) == 3
    sync_cycles(tracked, *tracked.pipeline.cycles)
    synced = client.get_run(run.info.run_id)
    assert synced.data.metrics == run.data.metrics
    assert synced.data.metrics["accuracy"] > 0
    assert (tracked.root / ".codline/logged/campaign.json").exists()


def test_points_that_cannot_be_logged_are_one_sentence(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free.getsockname()[1]}")
        log(workspace, monkeypatch)
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("1 points were not logged to MLflow: ")
    assert sentence.endswith("Connection refused); run the study again to log them")
    assert not (workspace.root / ".codline/logged/campaign.json").exists()
