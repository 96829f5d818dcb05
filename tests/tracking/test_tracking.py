"""MLflow shows what the files say: once, whoever was killed, and whether or not it was there at the time."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from codline.core import params
from codline.core.files import read_json, write_json
from codline.data import dataset_info, image_store, output_store, tables
from codline.learning import compute, inference, model_file
from codline.runtime import state_directory
from codline.tracking.address import address
from codline.tracking.lock_status import Lock
from stages import runner
from tests.workspace import REPOSITORY, Workspace, created

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import
QUIET = {"PYTHONPATH": str(REPOSITORY), "CODLINE_TRACKING": "on"}


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's empty tables: they take seconds to make, so every test gets a copy."""
    folder = tmp_path_factory.mktemp("mlflow")
    subprocess.run(
        [sys.executable, "-m", "codline.tracking", "init"],
        cwd=folder,
        env=os.environ | QUIET | {"MLFLOW_EXPERIMENT_NAME": "another"},
        check=True,
    )
    return folder / "mlflow.db"


@pytest.fixture
def tracked(workspace: Workspace, database: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return told_to(database, workspace, monkeypatch)


@pytest.fixture(scope="session")
def uninterrupted(campaign: Path, database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a user sees of the first cycle."""
    with pytest.MonkeyPatch.context() as patch:
        copy = Workspace(campaign).copied(tmp_path_factory.mktemp("uninterrupted") / "campaign")
        patch.chdir(copy.root)
        synced(told_to(database, copy, patch), "c1")
        return picture()


def told_to(database: Path, workspace: Workspace, patch: pytest.MonkeyPatch) -> Workspace:
    """With a copy of the database, in the current directory."""
    shutil.copy(database, workspace.root / "mlflow.db")
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace.root}/mlflow.db")
    for name in workspace.pipeline.names():
        state_directory.note("seconds", name, {"seconds": 1.5})
    return workspace


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(address())


def synced(workspace: Workspace, *cycles: str, ran: str | None = None) -> list[str]:
    from codline.tracking.store import Store
    from codline.tracking.sync import sync

    return list(sync(Store(), workspace.pipeline, list(cycles) or workspace.pipeline.cycles, ran))


def runs() -> dict[str, Any]:
    """The runs that are there, by name; two of one name would be a mistake."""
    experiment = client().get_experiment_by_name("codline")
    found = client().search_runs([experiment.experiment_id]) if experiment else []
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.info.run_name: run for run in found}


def points(run: Any) -> dict[str, list[tuple[int, float]]]:
    return {
        key: sorted((point.step, point.value) for point in client().get_metric_history(run.info.run_id, key))
        for key in run.data.metrics
    }


def picture() -> dict[str, Any]:
    """Everything that a user sees, without the ids and times that MLflow gives."""
    seen: dict[str, Any] = {}
    for name, run in runs().items():
        files = sorted(file.path for file in client().list_artifacts(run.info.run_id))
        tags = {key: value for key, value in run.data.tags.items() if key.startswith("codline.")}
        inputs = sorted(
            (known.dataset.name, known.dataset.digest, known.dataset.source) for known in run.inputs.dataset_inputs
        )
        seen[name] = (
            run.info.status,
            run.data.params,
            tags,
            points(run),
            files,
            inputs,
            len(run.outputs.model_outputs if run.outputs else []),
        )
    versions = client().search_model_versions("name = 'codline-digits'")
    seen["versions"] = sorted((version.tags["codline.cycle"], version.tags["accuracy"]) for version in versions)
    cycle_of = {version.version: version.tags["codline.cycle"] for version in versions}
    aliases = client().get_registered_model("codline-digits").aliases if versions else {}
    seen["aliases"] = {alias: cycle_of[int(version)] for alias, version in aliases.items()}
    experiment = client().get_experiment_by_name("codline").experiment_id
    seen["models"] = sorted(
        (model.name, str(model.status), model.metrics is not None)
        for model in client().search_logged_models([experiment])
    )
    return seen


def follower(workspace: Workspace, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "codline.tracking", "follow", *words]
    return subprocess.Popen(command, cwd=workspace.root, env=os.environ | QUIET, stdin=subprocess.PIPE, bufsize=0)


def training(cycle: str, rows: list[dict[str, Any]]) -> None:
    state_directory.note("progress", f"train@{cycle}", {"unit": "epoch", "done": len(rows), "total": 3, "curve": rows})


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def epochs(cycle: str) -> list[int]:
    return [step for step, _ in points(runs()[cycle]).get("train/task_loss", [])] if cycle in runs() else []


def test_a_finished_campaign_is_one_run_with_a_nested_run_for_each_cycle(tracked: Workspace) -> None:
    synced(tracked)
    whole, *cycles = (runs()[name] for name in ("digits cod seed 0", "c1", "c2", "c3"))
    assert len(runs()) == 4
    assert {run.info.status for run in (whole, *cycles)} == {"FINISHED"}
    assert {run.data.tags["mlflow.parentRunId"] for run in cycles} == {whole.info.run_id}
    assert whole.data.params["train.objective.name"] == "ema"
    found = [read_json(tracked.path("evaluate", "metrics", cycle)) for cycle in tracked.pipeline.cycles]
    assert points(whole)["accuracy"] == [(metrics["labels"], metrics["accuracy"]) for metrics in found]
    curve = tables.read_csv(tracked.path("train", "training_curve", "c2"), tables.TRAINING)
    assert points(cycles[1])["train/task_loss"] == list(
        zip(curve["epoch"].to_pylist(), curve["task_loss"].to_pylist(), strict=True)
    )
    told, shown = read_json(tracked.path("diagnose", "diagnostics", "c2")), cycles[1].data.metrics
    plain = {f"diagnose/{key}": value for key, value in told.items() if isinstance(value, float)}
    assert {"diagnose/spearman", "diagnose/spearman_low", "diagnose/mean_discrepancy", "diagnose/capture_gain"} <= set(
        plain
    )
    overlaps = {f"diagnose/overlap/{name}": share for name, share in told["overlap"].items()}
    assert {key: value for key, value in shown.items() if key.startswith("diagnose/")} == plain | overlaps
    assert cycles[1].data.metrics["seconds/acquisition"] == 3.0
    assert [len(run.outputs.model_outputs) for run in cycles] == [1, 1, 1]
    sources = {json.loads(known.dataset.source)["uri"] for known in cycles[1].inputs.dataset_inputs}
    assert sources == {"data/pool.parquet", "cycles/c1/labeled.parquet", "data/test.parquet"}


def test_syncing_twice_leaves_the_same_runs_and_points(tracked: Workspace) -> None:
    synced(tracked)
    before, ids = picture(), {name: run.info.run_id for name, run in runs().items()}
    assert synced(tracked) == ["c1: up to date", "c2: up to date", "c3: up to date"]
    assert picture() == before
    assert {name: run.info.run_id for name, run in runs().items()} == ids


def test_the_history_of_a_metric_is_asked_for_only_where_there_is_one(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    asked, history = list[str](), MlflowClient.get_metric_history
    monkeypatch.setattr(
        MlflowClient, "get_metric_history", lambda self, run, key: asked.append(key) or history(self, run, key)
    )
    synced(tracked, "c1")
    assert asked == []
    synced(tracked)
    assert sorted(asked) == sorted({*asked}), "once for each curve of the campaign"
    assert {"accuracy", "loss", "best_accuracy"} <= {*asked}
    assert not any("/" in key for key in asked), "the cycles' own metrics are new or marked as logged"


def test_an_unfinished_campaign_goes_on_running(tracked: Workspace) -> None:
    tracked.path("evaluate", "metrics", "c3").unlink()
    synced(tracked, "c2", "c3")
    assert {name: run.info.status for name, run in runs().items()} == {
        "digits cod seed 0": "RUNNING",
        "c2": "FINISHED",
        "c3": "RUNNING",
    }


class Killed(BaseException):
    pass


def mortal(lives: int) -> type:
    """MLflow's client, that dies after so many writes."""
    from mlflow import MlflowClient

    left = iter(range(lives - 1, -1, -1))

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def last(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = write(self, *args, **kwargs)
            if next(left) == 0:
                raise Killed
            return result

        return last

    writes = [
        name for name in dir(MlflowClient) if name.startswith(("log_", "create_", "set_", "finalize_", "update_"))
    ]
    return type("Mortal", (MlflowClient,), {name: dying(getattr(MlflowClient, name)) for name in writes})


@pytest.mark.parametrize("lives", range(1, 33))
def test_a_sync_killed_after_any_write_is_completed_by_the_next(
    tracked: Workspace, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("codline.tracking.store.MlflowClient", mortal(lives))
        synced(tracked, "c1")
    synced(tracked, "c1")
    assert picture() == uninterrupted


def test_a_follower_that_is_killed_is_continued_by_the_next(tracked: Workspace) -> None:
    rows = tables.read_csv(tracked.path("train", "training_curve", "c1"), tables.TRAINING).to_pylist()
    training("c1", rows[:2])
    first = follower(tracked, "train", "c1")
    eventually(lambda: epochs("c1") == [1, 2])
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = runs()["c1"].info.run_id
    training("c1", rows)
    second = follower(tracked, "train", "c1")
    runner.dismiss(second, b"done\n")
    assert second.returncode == 0
    assert epochs("c1") == [1, 2, 3]
    assert runs()["c1"].info.run_id == before


def test_a_follower_ends_with_its_stage(tracked: Workspace) -> None:
    orphan = follower(tracked, "train", "c1")
    assert orphan.stdin is not None
    orphan.stdin.close()  # as the kernel does for a stage that was killed
    orphan.wait(timeout=20)


def test_a_training_that_fails_is_shown_as_failed_and_may_be_tried_again(tracked: Workspace) -> None:
    from codline.tracking.follower import Listener, log

    rows = tables.read_csv(tracked.path("train", "training_curve", "c2"), tables.TRAINING).to_pylist()
    tracked.path("train", "training_curve", "c2").unlink()
    training("c2", rows[:1])
    listener = Listener()
    beside = threading.Thread(target=log, args=(listener, "train", "c2"))
    beside.start()
    eventually(lambda: listener.waits)
    listener.word = "failed"
    listener.heard.set()
    beside.join()
    assert runs()["c2"].info.status == "FAILED"
    assert runs()["c1"].info.status == "FINISHED"  # the follower had time for what the cycle before had left
    before = runs()["c2"].info.run_id
    tables.write_csv(
        pa.Table.from_pylist(rows, schema=tables.TRAINING),
        tables.TRAINING,
        tracked.path("train", "training_curve", "c2"),
    )
    synced(tracked, "c2")
    assert (runs()["c2"].info.run_id, runs()["c2"].info.status) == (before, "FINISHED")
    assert epochs("c2") == [1, 2, 3]


def test_a_follower_that_hangs_does_not_fail_its_stage(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 0.2)
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, bufsize=0) as hanging:
        runner.dismiss(hanging, b"done\n")
    assert hanging.returncode == -signal.SIGKILL
    assert capfd.readouterr().err == "codline: MLflow took longer than 0.2 s; run `codline track` later\n"


def test_two_syncs_at_once_leave_one_campaign(tracked: Workspace) -> None:
    shutil.rmtree(tracked.root / "cycles" / "c3")
    command = [sys.executable, "-m", "codline.tracking", "sync"]
    both = [
        subprocess.Popen(command, cwd=tracked.root, env=os.environ | QUIET, stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    seen = picture()
    assert synced(tracked) == ["c1: up to date", "c2: up to date", "c3: not run yet"]
    assert picture() == seen
    assert sorted(runs()) == ["c1", "c2", "digits cod seed 0"]
    assert [cycle for cycle, _ in seen["versions"]] == ["c1", "c2"]


def test_without_a_server_the_stage_finishes_and_a_later_sync_fills_in(tracked: Workspace) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
    finished = tracked.command("report", CODLINE_TRACKING="on", MLFLOW_TRACKING_URI=closed)
    assert finished.returncode == 0
    assert finished.stderr.splitlines() == [
        f"codline: MLflow at {closed} did not answer ([Errno 111] Connection refused); run `codline track` later"
    ]
    synced(tracked, "c1")
    whole = runs()["digits cod seed 0"].info.run_id
    assert "report/index.html" in {file.path for file in client().list_artifacts(whole, "report")}
    assert epochs("c1") == [1, 2, 3]


def test_a_stage_logs_its_cycle(tracked: Workspace) -> None:
    finished = tracked.command("evaluate", "c2", CODLINE_TRACKING="on")
    assert (finished.returncode, finished.stderr, finished.stdout) == (0, "", "")
    assert sorted(runs()) == ["c2", "digits cod seed 0"]
    assert runs()["c2"].data.metrics["accuracy"] == read_json(tracked.path("evaluate", "metrics", "c2"))["accuracy"]


def test_changed_results_replace_the_run_of_their_cycle_alone(tracked: Workspace) -> None:
    synced(tracked)
    before = {name: run.info.run_id for name, run in runs().items()}
    path = tracked.path("evaluate", "metrics", "c2")
    write_json(path, read_json(path) | {"accuracy": 1.0})
    assert [line.partition(" ")[2].split()[0] for line in synced(tracked)] == ["up", "replaced", "up"]
    after = {name: run.info.run_id for name, run in runs().items()}
    assert {name for name in before if before[name] != after[name]} == {
        "c2",
        "digits cod seed 0",
    }  # no point of the old curve may stay
    seen = picture()
    assert dict(seen["versions"])["c2"] == "1.0"
    assert len(seen["versions"]) == len(seen["models"]) == 3
    assert seen["aliases"] == {"best": "c2", "last": "c3"}
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs().values()} == {None, after["digits cod seed 0"]}


def test_a_run_that_somebody_deleted_comes_back(tracked: Workspace) -> None:
    synced(tracked, "c1")
    before = picture()
    for name in ("c1", "digits cod seed 0"):
        client().delete_run(runs()[name].info.run_id)
    synced(tracked, "c1")
    assert picture() == before


def test_other_params_are_another_campaign_but_more_cycles_are_not(tracked: Workspace) -> None:
    from codline.tracking.campaign import Campaign

    key = Campaign(tracked.pipeline).key
    tracked.change(cycles={"c1": {"prev": "init"}}, queries={})
    assert Campaign(tracked.pipeline).key == key
    tracked.change(seed=1)
    assert Campaign(tracked.pipeline).key != key


def test_full_training_is_not_called_after_a_strategy_that_asks_nothing(tmp_path: Path) -> None:
    from codline.tracking.campaign import Campaign

    workspace = created(tmp_path)
    workspace.change(**{"prepare.start": "all"})
    assert Campaign(workspace.pipeline).name == "digits cod seed 0"
    workspace.change(**params.chain(1))
    assert Campaign(workspace.pipeline).name == "digits full training seed 0"


def test_without_oracle_and_diagnostics_a_cycle_is_finished_too(tracked: Workspace) -> None:
    tracked.path("annotate", "oracle", "c1").unlink()
    tracked.path("diagnose", "diagnostics", "c1").unlink()
    synced(tracked, "c1")
    assert runs()["c1"].info.status == "FINISHED"
    assert "diagnose/spearman" not in runs()["c1"].data.metrics
    assert "spearman" not in runs()["digits cod seed 0"].data.metrics


def test_the_best_model_loads_anywhere_and_predicts_as_its_file_does(tracked: Workspace, tmp_path: Path) -> None:
    synced(tracked)
    found = {cycle: read_json(tracked.path("evaluate", "metrics", cycle)) for cycle in tracked.pipeline.cycles}
    best = max(found, key=lambda cycle: (found[cycle]["accuracy"], -found[cycle]["labels"]))
    facts = dataset_info.opened(tracked.path("prepare", "dataset"))
    store = image_store.opened(tracked.path("prepare", "images"))
    network, _ = model_file.load_network(
        tracked.path("train", "model", best), classes=len(facts.classes), shape=facts.shape
    )
    normalize = inference.Normalize(facts.mean, facts.std, compute.device("cpu"))
    expected = output_store.softmax(
        np.concatenate([logits for _, logits in inference.logits(network, store.take, store.ids, normalize, 512)])
    )
    np.save(tmp_path / "images.npy", store.take(store.ids))
    script = """
import mlflow, numpy, torch
torch.set_num_threads(1)
model = mlflow.pyfunc.load_model("models:/codline-digits@best")
numpy.save("probs.npy", model.predict(numpy.load("images.npy")))
"""
    elsewhere = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | compute.PINS["avx2"]
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=elsewhere, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "probs.npy"), expected)


def test_the_lock_vouches_for_what_was_made_from_these_files_and_params(tracked: Workspace) -> None:
    def written(model: str, seed: int) -> Lock:
        stages = {
            "train@c1": {"outs": [{"path": "m", "md5": "new"}], "params": {"params.yaml": {"seed": seed}}},
            "evaluate@c1": {
                "deps": [{"path": "m", "md5": model}, {"path": "code.py", "md5": "x"}],
                "outs": [{"path": "metrics", "md5": "y"}],
            },
        }
        (tracked.root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
        return Lock(tracked.pipeline)

    assert written("new", seed=0).vouches("evaluate@c1")
    assert not written("old", seed=0).vouches("evaluate@c1")  # the model was trained again since
    assert not written("new", seed=1).vouches("evaluate@c1")  # trained with another seed
    assert Lock(tracked.pipeline, ran="evaluate@c1").vouches("evaluate@c1")
    assert written("old", seed=1).vouches("score@c1")  # never run by DVC


def test_the_lock_vouches_for_a_report_on_these_cycles_alone(tracked: Workspace) -> None:
    folder = (
        hashlib.md5(b'[{"md5": "a", "relpath": "c1/m"}, {"md5": "b", "relpath": "c2/m"}]').hexdigest() + ".dir"
    )  # as DVC hashes folders
    for second, current in (("b", True), ("c", False)):
        trained = {
            "train@c1": {"outs": [{"path": "cycles/c1/m", "md5": "a"}]},
            "train@c2": {"outs": [{"path": "cycles/c2/m", "md5": second}]},
        }
        stages = trained | {"report": {"deps": [{"path": "cycles", "md5": folder}]}}
        (tracked.root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
        assert Lock(tracked.pipeline).vouches("report") == current


def test_results_of_other_params_are_not_logged(tracked: Workspace) -> None:
    made = {"params": {"params.yaml": {"seed": 7}}}
    stages = {name: made for name in tracked.pipeline.names()}
    (tracked.root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    assert all("run dvc repro" in line for line in synced(tracked))
    assert runs() == {}
    synced(tracked, ran="train@c1")
    assert set(runs()) == {"c1", "digits cod seed 0"}
    assert set(runs()["c1"].data.metrics) == {
        "train/learning_rate",
        "train/task_loss",
        "train/unsupervised_loss",
        "train/accuracy",
        "seconds/train",
    }
