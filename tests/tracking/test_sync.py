"""MLflow shows what the files contain, once, however often and by whomever it is logged."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codline.core import params
from codline.core.files import file_sha256, read_json, write_json
from codline.data import tables
from codline.evaluation.rank_statistics import RANKING_KEYS
from codline.runtime import state_directory
from codline.runtime.campaign_identity import CampaignIdentity
from tests.tracking.mlflow_view import (
    CAMPAIGN,
    FIRST_START,
    TRACKING_ON,
    client,
    lock_entries,
    points,
    run_ids,
    runs,
    snapshot,
    span,
    statuses,
    sync_cycles,
    write_lock,
)
from tests.workspace import Workspace, create_workspace

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import


def test_sync_logs_one_run_per_campaign_with_a_nested_run_per_cycle(tracked: Workspace) -> None:
    sync_cycles(tracked)
    campaign, *cycles = (runs()[name] for name in (CAMPAIGN, "c1", "c2", "c3"))
    assert len(runs()) == 4
    assert set(statuses().values()) == {"FINISHED"}
    assert {run.data.tags["mlflow.parentRunId"] for run in cycles} == {campaign.info.run_id}
    assert campaign.data.params["train.objectives.ema.weight"] == "0.05"
    metrics = [read_json(tracked.path("evaluate", "metrics", cycle)) for cycle in tracked.pipeline.cycles]
    assert points(campaign)["accuracy"] == [(values["labels"], values["accuracy"]) for values in metrics]
    assert cycles[1].data.metrics["seconds/acquisition"] == 3.0
    assert [len(run.outputs.model_outputs) for run in cycles] == [1, 1, 1]
    datasets = [dataset_input.dataset for dataset_input in cycles[1].inputs.dataset_inputs]
    sources = {json.loads(dataset.source)["uri"] for dataset in datasets}
    assert sources == {"data/pool.parquet", "cycles/c1/labeled.parquet", "data/validation.parquet", "data/test.parquet"}


def test_run_of_a_cycle_lasts_from_its_training_to_its_last_stage_and_the_campaign_spans_its_cycles(
    tracked: Workspace,
) -> None:
    sync_cycles(tracked)
    starts = {name: FIRST_START + 2 * i for i, name in enumerate(tracked.pipeline.stage_names())}
    stages = {cycle: [name for name in starts if name.endswith(f"@{cycle}")] for cycle in tracked.pipeline.cycles}
    expected = {cycle: (starts[names[0]], starts[names[-1]] + 1.5) for cycle, names in stages.items()}
    assert {cycle: span(cycle) for cycle in expected} == expected
    assert span(CAMPAIGN) == (expected["c1"][0], expected["c3"][1])


def test_run_of_a_cycle_leaves_out_stages_that_ran_for_another_campaign(tracked: Workspace) -> None:
    note = {"seconds": 1.5, "started": FIRST_START - 86400, "campaign": "another"}
    state_directory.write_note("seconds", "train@c1", note)
    sync_cycles(tracked, "c1")
    assert span("c1")[0] == FIRST_START + 4, "its second stage, after prepare and train"


def test_run_of_a_cycle_that_is_trained_again_leaves_out_stages_that_have_not_run_since(tracked: Workspace) -> None:
    note = {"seconds": 1.5, "campaign": CampaignIdentity(tracked.pipeline.params).key}
    state_directory.write_note("seconds", "train@c1", note | {"started": FIRST_START + 1000})
    state_directory.write_note("seconds", "merge@c1", note | {"started": FIRST_START + 1010})
    sync_cycles(tracked, "c1")
    assert span("c1") == (FIRST_START + 1000, FIRST_START + 1011.5)


def test_run_of_a_cycle_keeps_its_times_when_stages_run_again_with_the_same_results(tracked: Workspace) -> None:
    sync_cycles(tracked)
    before = {name: span(name) for name in runs()}
    for name in tracked.pipeline.stage_names():
        note = state_directory.read_note("seconds", name) or {}
        state_directory.write_note("seconds", name, note | {"started": note["started"] + 86400})
    sync_cycles(tracked)
    assert {name: span(name) for name in runs()} == before


def test_run_list_has_what_identifies_a_cycle(tracked: Workspace) -> None:
    sync_cycles(tracked, "c2")
    run = runs()["c2"]
    assert run.info.run_name == f"{CAMPAIGN} · c2"
    shown = {"cycle": "c2", "dataset": "digits", "strategy": "cod", "seed": "0"}
    assert run.data.params.items() >= shown.items()
    assert "Dataset digits, strategy cod, seed 0." in run.data.tags["mlflow.note.content"]
    assert "dvc repro evaluate@c2" in run.data.tags["mlflow.note.content"]
    files = {file.path for file in client().list_artifacts(run_ids()[CAMPAIGN])}
    assert "params.yaml" in files, "which the description names"


def test_sync_replaces_all_runs_when_the_raw_input_has_changed_under_the_same_params(tracked: Workspace) -> None:
    sync_cycles(tracked)
    before = run_ids()
    path = tracked.path("prepare", "test")
    rows = tables.read_table(path, tables.TEST)
    tables.write_table(rows.slice(1), tables.TEST, path)
    for cycle in ("c2", "c3"):  # they have not run again yet
        shutil.rmtree(tracked.root / "cycles" / cycle)
    sync_cycles(tracked)
    assert set(runs()) == {CAMPAIGN, "c1"}
    assert not {*run_ids().values()} & {*before.values()}
    metrics = read_json(tracked.path("evaluate", "metrics", "c1"))
    assert points(runs()[CAMPAIGN])["accuracy"] == [(metrics["labels"], metrics["accuracy"])]
    digests = [item.dataset.digest for run in runs().values() for item in run.inputs.dataset_inputs]
    assert file_sha256(path)[:32] in digests
    assert [cycle for cycle, _ in snapshot()["versions"]] == ["c1"]


def test_sync_changes_nothing_while_dvc_lock_does_not_record_the_data_yet(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked))
    sync_cycles(tracked)
    before = run_ids()
    path = tracked.path("prepare", "test")
    tables.write_table(tables.read_table(path, tables.TEST).slice(1), tables.TEST, path)
    assert sync_cycles(tracked, "c1") == ["c1: out of date (data): run dvc repro"]
    assert run_ids() == before


def test_sync_logs_the_training_curve_and_every_number_of_the_diagnostics(tracked: Workspace) -> None:
    sync_cycles(tracked, "c2")
    curve = tables.read_csv(tracked.path("train", "training_curve", "c2"), tables.TRAINING)
    expected = list(zip(curve["epoch"].to_pylist(), curve["task_loss"].to_pylist(), strict=True))
    assert points(runs()["c2"])["train/task_loss"] == expected
    diagnostics, metrics = read_json(tracked.path("diagnose", "diagnostics", "c2")), runs()["c2"].data.metrics
    plain = {f"diagnose/{key}": value for key, value in diagnostics.items() if isinstance(value, float)}
    assert {f"diagnose/{key}" for key in ("spearman", "spearman_low", "loss_ratio", "capture_gain")} <= set(plain)
    overlaps = {f"diagnose/overlap/{name}": share for name, share in diagnostics["overlap"].items()}
    del diagnostics["squared_gradient_norm"]["within_cycle"]
    norms = {
        f"diagnose/squared_gradient_norm/{key}": norm for key, norm in diagnostics["squared_gradient_norm"].items()
    }
    assert {key: value for key, value in metrics.items() if key.startswith("diagnose/")} == plain | overlaps | norms
    assert runs()[CAMPAIGN].data.metrics["loss_ratio"] == diagnostics["loss_ratio"]


def test_sync_logs_no_rank_statistics_of_a_strategy_that_selects_whole_queries(tracked: Workspace) -> None:
    path = tracked.path("diagnose", "diagnostics", "c2")
    write_json(path, read_json(path) | dict.fromkeys(RANKING_KEYS))
    sync_cycles(tracked, "c2")
    metrics = runs()["c2"].data.metrics
    assert "diagnose/loss_ratio" in metrics
    assert not [key for key in metrics if key.removeprefix("diagnose/") in RANKING_KEYS]
    assert "spearman" not in runs()[CAMPAIGN].data.metrics


def test_sync_repeated_leaves_the_same_runs_and_points(tracked: Workspace) -> None:
    sync_cycles(tracked)
    before, ids = snapshot(), run_ids()
    assert sync_cycles(tracked) == ["c1: up to date", "c2: up to date", "c3: up to date"]
    assert snapshot() == before
    assert run_ids() == ids


def test_sync_requests_the_history_of_a_metric_only_if_the_run_has_one(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    requested, get_history = list[str](), MlflowClient.get_metric_history

    def recording(self: Any, run: str, key: str) -> Any:
        requested.append(key)
        return get_history(self, run, key)

    monkeypatch.setattr(MlflowClient, "get_metric_history", recording)
    sync_cycles(tracked, "c1")
    assert requested == []
    sync_cycles(tracked)
    assert sorted(requested) == sorted({*requested}), "once for each curve of the campaign"
    assert {"accuracy", "loss", "best_accuracy"} <= {*requested}
    assert not any("/" in key for key in requested), "the cycles' own metrics are new or tagged as logged"


def test_sync_leaves_an_unfinished_campaign_running(tracked: Workspace) -> None:
    tracked.path("evaluate", "metrics", "c3").unlink()
    sync_cycles(tracked, "c2", "c3")
    assert statuses() == {CAMPAIGN: "RUNNING", "c2": "FINISHED", "c3": "RUNNING"}


class Killed(BaseException):
    pass


def dying_client(writes: int) -> type:
    """An MlflowClient that raises Killed after this many writes."""
    from mlflow import MlflowClient

    remaining = iter(range(writes - 1, -1, -1))

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def write_and_count(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = write(self, *args, **kwargs)
            if next(remaining) == 0:
                raise Killed
            return result

        return write_and_count

    prefixes = ("log_", "create_", "set_", "finalize_", "update_")
    methods = [name for name in dir(MlflowClient) if name.startswith(prefixes)]
    return type("DyingClient", (MlflowClient,), {name: counted(getattr(MlflowClient, name)) for name in methods})


@pytest.mark.parametrize("writes", range(1, 33, 2))
def test_sync_killed_after_any_write_is_completed_by_the_next(
    tracked: Workspace, snapshot_of_c1: dict[str, Any], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("codline.tracking.store.MlflowClient", dying_client(writes))
        sync_cycles(tracked, "c1")
    sync_cycles(tracked, "c1")
    assert snapshot() == snapshot_of_c1


def test_sync_in_two_processes_at_once_leaves_one_campaign(tracked: Workspace) -> None:
    shutil.rmtree(tracked.root / "cycles" / "c3")
    command, environment = [sys.executable, "-m", "codline.tracking", "sync"], os.environ | TRACKING_ON
    processes = [
        subprocess.Popen(command, cwd=tracked.root, env=environment, stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    before = snapshot()
    assert sync_cycles(tracked) == ["c1: up to date", "c2: up to date", "c3: not run yet"]
    assert snapshot() == before
    assert sorted(runs()) == ["c1", "c2", CAMPAIGN]
    assert [cycle for cycle, _ in before["versions"]] == ["c1", "c2"]


def test_sync_replaces_the_run_of_changed_results_alone(tracked: Workspace) -> None:
    sync_cycles(tracked)
    before = run_ids()
    path = tracked.path("evaluate", "metrics", "c2")
    write_json(path, read_json(path) | {"accuracy": 1.0, "validation_accuracy": 1.0})
    assert [line.split()[1] for line in sync_cycles(tracked)] == ["up", "replaced", "up"]
    after, view = run_ids(), snapshot()
    replaced = {name for name in before if before[name] != after[name]}
    assert replaced == {"c2", CAMPAIGN}, "the campaign's curve may keep no point of the old results"
    assert dict(view["versions"])["c2"] == "1.0"
    assert len(view["versions"]) == len(view["models"]) == 3
    assert view["aliases"] == {"best": "c2", "last": "c3"}
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs().values()} == {None, after[CAMPAIGN]}


def test_sync_logs_a_run_again_that_was_deleted(tracked: Workspace) -> None:
    sync_cycles(tracked, "c1")
    before = snapshot()
    for name in ("c1", CAMPAIGN):
        client().delete_run(runs()[name].info.run_id)
    sync_cycles(tracked, "c1")
    assert snapshot() == before


def test_sync_finishes_a_cycle_without_oracle_and_diagnostics(tracked: Workspace) -> None:
    tracked.path("diagnose", "oracle", "c1").unlink()
    tracked.path("diagnose", "diagnostics", "c1").unlink()
    sync_cycles(tracked, "c1")
    assert statuses()["c1"] == "FINISHED"
    assert "diagnose/spearman" not in runs()["c1"].data.metrics
    assert "spearman" not in runs()[CAMPAIGN].data.metrics


def test_sync_logs_the_report(tracked: Workspace) -> None:
    tracked.run("report")
    sync_cycles(tracked, "c1")
    assert "report/index.html" in {file.path for file in client().list_artifacts(run_ids()[CAMPAIGN], "report")}


def test_sync_does_not_log_results_of_other_params(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked, seed=7))
    assert all("run dvc repro" in line for line in sync_cycles(tracked))
    assert runs() == {}


def test_sync_logs_only_the_stages_that_are_current(tracked: Workspace) -> None:
    entries = lock_entries(tracked)
    entries["evaluate@c1"]["params"]["params.yaml"]["evaluate"] = "another"
    write_lock(tracked, entries)
    assert sync_cycles(tracked, "c1")[0].endswith("; out of date (metrics, confusion): run dvc repro")
    assert statuses() == {CAMPAIGN: "RUNNING", "c1": "RUNNING"}
    assert "train/task_loss" in runs()["c1"].data.metrics
    assert "accuracy" not in runs()["c1"].data.metrics


def test_best_metric_of_segmentation_is_mean_iou() -> None:
    from codline.tracking.sync import best_curve

    cycles = {
        10: {"labels": 10.0, "accuracy": 0.8, "mean_iou": 0.3, "validation_mean_iou": 0.5},
        20: {"labels": 20.0, "accuracy": 0.9, "mean_iou": 0.2, "validation_mean_iou": 0.6},
        30: {"labels": 30.0, "accuracy": 0.9, "mean_iou": 0.4, "validation_mean_iou": 0.1},
    }
    assert best_curve(cycles) == {"best_mean_iou": {10: 0.3, 20: 0.2, 30: 0.2}}


def test_campaign_with_other_params_is_another_one_but_more_cycles_continue_it(tracked: Workspace) -> None:
    from codline.tracking.campaign import TrackedCampaign

    key = TrackedCampaign(tracked.pipeline).key
    tracked.change(cycles={"c1": {"prev": "init"}}, queries={})
    assert TrackedCampaign(tracked.pipeline).key == key
    tracked.change(seed=1)
    assert TrackedCampaign(tracked.pipeline).key != key


def test_campaign_of_full_training_is_not_named_after_its_unused_strategy(tmp_path: Path) -> None:
    from codline.tracking.campaign import TrackedCampaign

    workspace = create_workspace(tmp_path)
    workspace.change(**{"prepare.start": "all"})
    assert TrackedCampaign(workspace.pipeline).name() == CAMPAIGN
    workspace.change(**params.cycle_chain(1))
    assert TrackedCampaign(workspace.pipeline).name() == "digits · full training · seed 0"
