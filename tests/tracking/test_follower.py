"""The follower logs a campaign while it runs, and never disturbs it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codline.core.files import read_json, write_json
from codline.runtime import stage_snapshot, state_directory
from codline.runtime.background import LOG, Background
from codline.tracking import follower
from tests.tracking.mlflow_view import (
    CAMPAIGN,
    FIRST_START,
    TRACKING_ON,
    accuracies,
    epochs,
    lock_entries,
    run_ids,
    runs,
    snapshot,
    statuses,
    sync_cycles,
    training_rows,
    wait_until,
    write_lock,
    write_progress,
)
from tests.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(follower, "RETRY_SECONDS", 0.05)


def start_process(workspace: Workspace, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "codline.tracking", "follow", *arguments]
    environment = os.environ | TRACKING_ON
    return subprocess.Popen(command, cwd=workspace.root, env=environment, stdin=subprocess.PIPE, bufsize=0)


@contextmanager
def follower_thread(message: str = "") -> Iterator[None]:
    """A follower in this process, which has imported mlflow already. It must end with this message."""
    end, messages = follower.EndOfCampaign(None), list[str]()
    thread = threading.Thread(target=lambda: messages.append(follower.log_campaign(end)), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.reached.set()
        thread.join(60)
    assert messages == [message]


def test_follower_leaves_out_a_training_whose_parameters_were_edited(workspace: Workspace) -> None:
    """It will be refused, and its epochs belong to the old parameters, not to those in params.yaml."""
    raw = workspace.pipeline.params
    note = {"stage": "train@c1", "params_file": "params.yaml", "inputs": {}, "code_paths": [], "code": {}}
    state_directory.write_note(stage_snapshot.NOTE, "train@c1", note | {"params": {"train": raw["train"]}})
    log = follower.EpochLog(None, workspace.pipeline)
    write_progress("c1", rows := training_rows(workspace, "c1"))
    assert log.epochs("c1") == rows
    workspace.change(**{"train.epochs": 7})
    write_progress("c1", rows)
    assert log.epochs("c1") == []


def test_follower_that_is_killed_is_continued_by_the_next(tracked: Workspace) -> None:
    rows = training_rows(tracked, "c1")
    write_progress("c1", rows[:2])
    with start_process(tracked) as first:
        wait_until(lambda: epochs("c1") == [1, 2])
        first.send_signal(signal.SIGKILL)
    before = run_ids()
    write_progress("c1", rows)
    with follower_thread():
        pass
    assert epochs("c1") == [1, 2, 3]
    assert run_ids() == before
    starts = {run.info.start_time / 1000 for run in runs().values()}
    assert starts == {FIRST_START - 100}, "when the training started, not when its first epoch was logged"


def test_follower_ends_at_once_when_its_standard_input_closes_without_a_line(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked))
    process = start_process(tracked)
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does for a campaign that is killed
    assert process.wait(timeout=20) == 0
    assert runs() == {}


def test_follower_logs_everything_that_dvc_lock_records_after_its_owner_has_ended(tracked: Workspace) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        process = start_process(tracked, "--owner", str(owner.pid))
        write_lock(tracked, lock_entries(tracked))
        owner.kill()
    assert process.wait(timeout=60) == 0
    assert statuses() == {CAMPAIGN: "FINISHED", "c1": "FINISHED", "c2": "FINISHED", "c3": "FINISHED"}


def test_follower_logs_results_while_the_campaign_runs(tracked: Workspace, snapshot_of_c1: dict[str, Any]) -> None:
    entries = lock_entries(tracked)
    with follower_thread():
        write_lock(tracked, {name: entry for name, entry in entries.items() if name == "prepare" or "c1" in name})
        wait_until(lambda: statuses() == {CAMPAIGN: "RUNNING", "c1": "FINISHED"})
        wait_until(lambda: snapshot() == snapshot_of_c1)
        write_lock(tracked, entries)
        wait_until(lambda: set(statuses().values()) == {"FINISHED"} and "c3" in runs())


def test_follower_replaces_results_that_a_stage_writes_again(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked))
    path = tracked.path("evaluate", "metrics", "c3")
    with follower_thread():
        wait_until(lambda: statuses().get("c3") == "FINISHED")
        write_json(path, read_json(path) | {"accuracy": 1.0})
        write_lock(tracked, lock_entries(tracked))
        wait_until(lambda: accuracies().get("c3") == 1.0)


def test_follower_logs_results_at_the_end_that_were_missing_while_their_stage_ran_again(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked))
    path = tracked.path("evaluate", "metrics", "c3")
    path.rename("hidden")
    with follower_thread():
        wait_until(lambda: statuses().get("c2") == "FINISHED" and "c3" in runs())
        Path("hidden").rename(path)
    assert statuses()["c3"] == "FINISHED"


def test_follower_logs_only_stages_that_dvc_lock_records(tracked: Workspace) -> None:
    entries = lock_entries(tracked)
    write_lock(tracked, {name: entries[name] for name in ("prepare", "train@c1")})
    with follower_thread():
        pass
    assert statuses() == {CAMPAIGN: "RUNNING", "c1": "RUNNING"}
    names = ("train/learning_rate", "train/task_loss", "train/unsupervised_loss", "train/accuracy", "seconds/train")
    assert set(runs()["c1"].data.metrics) == {*names}


def test_follower_keeps_a_point_of_a_cycle_that_was_logged_by_hand(tracked: Workspace) -> None:
    sync_cycles(tracked, "c1")
    before = run_ids()
    write_lock(tracked, {"prepare": lock_entries(tracked)["prepare"]})
    with follower_thread():
        pass
    assert run_ids() == before


def test_follower_does_not_log_files_that_dvc_lock_does_not_record_yet(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked))
    path = tracked.path("evaluate", "metrics", "c1")
    path.write_text(path.read_text() + "\n")
    with follower_thread():
        pass
    assert "accuracy" not in runs()["c1"].data.metrics
    assert statuses().get("c2") == "FINISHED"


def test_follower_never_logs_results_of_other_params(tracked: Workspace) -> None:
    write_lock(tracked, lock_entries(tracked, seed=7))
    with follower_thread():
        time.sleep(0.5)
    assert runs() == {}


def test_follower_logs_cycles_that_become_current_when_another_stage_runs_again(tracked: Workspace) -> None:
    entries = lock_entries(tracked)
    with follower_thread():
        stale = entries["prepare"] | {"params": {"params.yaml": {"seed": 7}}}
        write_lock(tracked, entries | {"prepare": stale})
        time.sleep(0.5)
        assert runs() == {}
        write_lock(tracked, entries)
        wait_until(lambda: statuses().get("c3") == "FINISHED")


def test_follower_logs_no_epochs_that_were_trained_before_params_yaml_changed(tracked: Workspace) -> None:
    write_progress("c1", training_rows(tracked, "c1"))
    tracked.change(seed=1)
    with follower_thread():
        pass
    assert runs() == {}


def test_follower_logs_to_another_campaign_once_params_yaml_has_changed(tracked: Workspace) -> None:
    rows = training_rows(tracked, "c1")
    with follower_thread():
        write_progress("c1", rows[:1])
        wait_until(lambda: epochs("c1") == [1])
        before = run_ids()
        tracked.change(cycles={"c4": {"prev": "init"}}, queries={}, seed=1)
        write_progress("c4", rows[:2])
        wait_until(lambda: epochs("c4") == [1, 2])
    assert run_ids().items() >= before.items()
    assert set(runs()) == {CAMPAIGN, "digits · cod · seed 1", "c1", "c4"}


def test_follower_waits_for_a_dvc_lock_that_is_being_written(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "RETRY_SECONDS", 1000.0)  # it is no error
    path = tracked.root / "dvc.lock"
    write_lock(tracked, lock_entries(tracked))
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with follower_thread():
        time.sleep(0.5)
        assert runs() == {}
        path.write_text(text)
        wait_until(lambda: statuses().get("c3") == "FINISHED")


def test_follower_shows_a_training_that_fails_as_failed_and_the_next_attempt_as_running(tracked: Workspace) -> None:
    rows = training_rows(tracked, "c2")
    with follower_thread():
        write_progress("c2", rows[:1])
        wait_until(lambda: epochs("c2") == [1])
        state_directory.write_note("error", "train@c2", {"sentence": "out of memory", "exit_code": 1})
        state_directory.delete_note("progress", "train@c2")
        wait_until(lambda: statuses().get("c2") == "FAILED")
        before = run_ids()
        state_directory.delete_note("error", "train@c2")
        write_progress("c2", rows[:2])
        wait_until(lambda: statuses().get("c2") == "RUNNING")
        write_lock(tracked, lock_entries(tracked))
        wait_until(lambda: statuses().get("c2") == "FINISHED")
    assert run_ids().items() >= before.items()
    assert epochs("c2") == [1, 2, 3]


def test_two_followers_in_one_workspace_leave_one_campaign(tracked: Workspace) -> None:
    write_progress("c1", training_rows(tracked, "c1"))
    with follower_thread(), follower_thread():
        write_lock(tracked, lock_entries(tracked))
        wait_until(lambda: statuses().get("c3") == "FINISHED")
    before = snapshot()
    assert sync_cycles(tracked) == ["c1: up to date", "c2: up to date", "c3: up to date"]
    assert snapshot() == before


def test_follower_without_a_server_leaves_one_sentence_and_a_later_sync_logs_everything(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    write_lock(tracked, lock_entries(tracked))
    with monkeypatch.context() as patch:
        for key, value in (TRACKING_ON | {"MLFLOW_TRACKING_URI": address}).items():
            patch.setenv(key, value)
        background = Background()
        background.start_follower()
        message = background.stop()
    reason = "did not answer ([Errno 111] Connection refused); run `codline track` later"
    assert message == f"MLflow at {address} {reason}"
    assert (state_directory.state_root() / LOG).read_text() == f"{message}\n"
    sync_cycles(tracked, "c1")
    assert epochs("c1") == [1, 2, 3]


def test_follower_goes_on_after_an_outage(tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from codline.tracking.store import MlflowStore

    failures, list_runs = iter(range(3)), MlflowStore.runs

    def unreliable(self: MlflowStore, campaign: str) -> dict[str, Any]:
        if next(failures, None) is not None:
            raise ConnectionError
        return list_runs(self, campaign)

    monkeypatch.setattr(MlflowStore, "runs", unreliable)
    write_lock(tracked, lock_entries(tracked))
    with follower_thread():
        wait_until(lambda: statuses().get("c3") == "FINISHED")


def test_follower_reports_an_unexpected_error(tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "EpochLog", lambda *_: 1 / 0)
    reason = "unexpected ZeroDivisionError: division by zero"
    with follower_thread(f"not everything was logged to MLflow: {reason}; run `codline track` later"):
        pass


@pytest.mark.parametrize("connected", [True, False])
def test_follower_gives_up_after_the_campaign_only_if_it_has_not_reached_mlflow(
    monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    messages = list[str]()
    monkeypatch.setattr(follower, "leave", messages.append)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql+psycopg2://me:secret@host/mlflow")
    end = follower.EndOfCampaign(None)
    end.connected = connected
    end.give_up()
    address = "postgresql+psycopg2://me:***@host/mlflow"
    sentence = f"MLflow at {address} did not answer (for 20 s); run `codline track` later"
    assert messages == ([] if connected else [sentence])
