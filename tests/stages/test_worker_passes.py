"""Stages write the same bytes with one process, with several, and after workers were killed."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from codline.core.errors import DataError
from codline.data.labels import unlabeled_ids
from codline.engine import local_workers
from codline.engine.setting import ENGINE, EXPECTED
from codline.learning import model_file, pass_files
from codline.learning.inference import BatchOutputs
from codline.runtime import state_directory
from tests.workspace import Workspace, create_workspace

pytestmark = pytest.mark.slow
TASKS = {
    "classification": {"prepare.dataset": {"name": "digits", "test": 0.2}, "score.batch_size": 32},
    "segmentation": {
        "prepare.dataset": {"name": "streets", "count": 60},
        "prepare.model": {"name": "small_unet", "width": 4},
        "score.batch_size": 4,
    },
}
STRATEGIES: list[dict[str, Any]] = [  # that differ in what they need of a pass
    {"name": "random"},
    {"name": "cod"},
    {"name": "emaod"},
    {"name": "mc_dropout", "passes": 3},
    {"name": "core_set"},
    {"name": "ll4al"},
]


@pytest.fixture(scope="module", params=TASKS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign whose first model is trained, with what all of these strategies need."""
    workspace = create_workspace(tmp_path_factory.mktemp(request.param))
    workspace.change(**TASKS[request.param])
    model = {**workspace.pipeline.params["prepare"]["model"], "dropout": 0.25}
    objectives = [{"name": "ema"}, {"name": "ll4al"}]
    workspace.change(**{"prepare.model": model, "train.objectives": objectives, "train.epochs": 1})
    workspace.change(**{"diagnose.batch_size": 4, "evaluate.batch_size": 2, "train.snapshots": [1]})
    with contextlib.chdir(workspace.root):
        for stage in ("prepare", "train", "score", "select"):
            workspace.run(stage, None if stage == "prepare" else "c1")
    return workspace


@pytest.fixture
def campaign_copy(
    trained: Workspace, tmp_path: Path, fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """A copy of it as the current directory. Workers are forked from the fork server of the tests."""
    shutil.copytree(trained.root, tmp_path / "campaign", ignore=shutil.ignore_patterns(".codline"))
    monkeypatch.chdir(tmp_path / "campaign")
    for name, value in fork_server_environment.items():
        monkeypatch.setenv(name, value)
    return Workspace(tmp_path / "campaign")


def hashes(workspace: Workspace, stage: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """SHA-256 of the files that a stage writes under this engine."""
    cycle = None if stage == "prepare" else "c1"
    outputs = workspace.outputs(stage, cycle)
    for path in outputs:
        path.unlink(missing_ok=True)
    monkeypatch.setenv(ENGINE, engine)
    workspace.run(stage, cycle)
    return file_hashes(outputs)


def file_hashes(paths: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def count_workers(monkeypatch: pytest.MonkeyPatch, killed: tuple[int, ...] = ()) -> list[int]:
    """A list of the workers that are started; those of the given exchanges are killed before they can answer."""
    started, numbers = list[int](), count()
    start, exchange = local_workers.PassWorker.start, local_workers.PassWorker.exchange

    def counted_start(worker: local_workers.PassWorker) -> None:
        start(worker)
        assert worker.process is not None
        started.append(worker.process.pid)

    def disturbed_exchange(worker: local_workers.PassWorker, messages: list[bytes]) -> bytes:
        if next(numbers) in killed:
            assert worker.process is not None
            os.kill(worker.process.pid, signal.SIGKILL)
        return exchange(worker, messages)

    monkeypatch.setattr(local_workers.PassWorker, "start", counted_start)
    monkeypatch.setattr(local_workers.PassWorker, "exchange", disturbed_exchange)
    return started


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy["name"])
def test_score_writes_the_same_bytes_with_workers_also_if_some_are_killed(
    campaign_copy: Workspace, strategy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign_copy.change(**{"score.strategy": strategy})
    expected = hashes(campaign_copy, "score", "local", monkeypatch)
    started = count_workers(monkeypatch)
    assert hashes(campaign_copy, "score", "local:2", monkeypatch) == expected
    assert len(started) >= 2  # more if the labelled images are a pass of several chunks too
    started = count_workers(monkeypatch, killed=(0, 2))
    assert hashes(campaign_copy, "score", "local:3", monkeypatch) == expected
    assert len(started) >= 3 + 2


def test_score_writes_the_same_bytes_with_workers_if_it_recomputes_the_previous_outputs(
    campaign_copy: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign_copy.change(**{"score.previous": "recomputed", "score.subset": 0.7})
    expected = hashes(campaign_copy, "score", "local", monkeypatch)
    started = count_workers(monkeypatch)
    assert hashes(campaign_copy, "score", "local:2", monkeypatch) == expected
    assert len(started) == 2


def test_random_views_are_drawn_in_one_process_and_have_the_same_bytes(
    campaign_copy: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign_copy.change(**{"score.previous": "recomputed", "score.augment": {"crop": 1, "flip": True}})
    expected = hashes(campaign_copy, "score", "local", monkeypatch)
    started = count_workers(monkeypatch)
    assert hashes(campaign_copy, "score", "local:2", monkeypatch) == expected
    assert started == []


@pytest.mark.parametrize("stage", ["prepare", "evaluate", "diagnose"])
def test_other_stages_write_the_same_bytes_with_workers(
    campaign_copy: Workspace, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.prepare.BATCH_PIXELS", 1)  # the smallest batches
    expected = hashes(campaign_copy, stage, "local", monkeypatch)
    started = count_workers(monkeypatch, killed=(1,))
    assert hashes(campaign_copy, stage, "local:2", monkeypatch) == expected
    assert len(started) > 2


def break_off(monkeypatch: pytest.MonkeyPatch, batches: int) -> list[int]:
    """Let the pass of score end as by Ctrl-C once it has kept this many batches. Returns a list of their images."""
    computed = list[int]()
    kept = count(1)
    append = pass_files.PassFile.append

    def counted_append(file: pass_files.PassFile, batch: BatchOutputs) -> BatchOutputs:
        computed.extend(batch.ids.tolist())
        returned = append(file, batch)
        if next(kept) == batches:
            raise KeyboardInterrupt
        return returned

    monkeypatch.setattr(pass_files.PassFile, "append", counted_append)
    return computed


@pytest.mark.parametrize("strategy", STRATEGIES[2:], ids=lambda strategy: strategy["name"])
def test_pass_that_was_broken_off_goes_on_with_another_engine_and_writes_the_same_bytes(
    campaign_copy: Workspace, strategy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign_copy.change(**{"score.strategy": strategy})
    expected = hashes(campaign_copy, "score", "local", monkeypatch)
    unlabeled = unlabeled_ids(*(campaign_copy.path("score", name, "c1") for name in ("pool", "labeled")))
    monkeypatch.setenv(ENGINE, "local:2")
    computed = break_off(monkeypatch, batches=6)
    with pytest.raises(KeyboardInterrupt):
        campaign_copy.execute("score", "c1")
    assert len(list(Path(".codline/passes/score@c1").iterdir())) == 1
    monkeypatch.setenv(ENGINE, "local")
    campaign_copy.execute("score", "c1")
    assert len(set(computed)) == len(computed)  # none twice
    assert set(unlabeled).issubset(computed)
    assert file_hashes(campaign_copy.outputs("score", "c1")) == expected
    assert not Path(".codline/passes/score@c1").exists()


def test_outputs_that_are_not_finite_are_refused_alike_with_workers(
    campaign_copy: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, info = campaign_copy.path("score", "model", "c1"), campaign_copy.path("score", "dataset", "c1")
    shape = json.loads(info.read_text())["shape"]
    classes = len(json.loads(info.read_text())["classes"])
    network, card = model_file.load_network(path, classes=classes, shape=tuple(shape))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(3e38)
    model_file.save_network(path, network, card)
    sentences = set()
    for engine in ("local", "local:2"):
        with pytest.raises(DataError) as refused:
            hashes(campaign_copy, "score", engine, monkeypatch)
        sentences.add(str(refused.value))
    assert sentences == {"the model's outputs are not finite numbers; expected weights for which they are"}


def test_progress_note_has_the_number_of_workers(campaign_copy: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes(campaign_copy, "score", "local:2", monkeypatch)
    note = state_directory.read_note("progress", "score@c1")
    assert note is not None
    assert (note["done"], note["workers"]) == (note["total"], 2)


def test_wrong_engine_is_refused_with_exit_code_2(campaign_copy: Workspace) -> None:
    done = campaign_copy.command("score", "c1", **{ENGINE: "local:many"})
    assert done.stderr == f"codline: score@c1: --engine or {ENGINE}: found 'local:many', {EXPECTED}\n"
    assert done.returncode == 2
