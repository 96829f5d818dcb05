"""prepare: the pool without labels, the true labels in other files, and a split that depends on the seed only."""

import hashlib
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core import params
from codline.core.errors import UserError
from codline.data import image_store, ingest, tables
from tests.workspace import Workspace


def read_ids(workspace: Workspace, argument: str) -> set[int]:
    schema = {"pool": tables.POOL, "oracle": tables.ORACLE, "test": tables.TEST, "labeled": tables.LABELED}[argument]
    return set(tables.read_table(workspace.path("prepare", argument), schema)["id"].to_pylist())


def test_prepare_splits_all_images_into_pool_and_test(workspace: Workspace) -> None:
    images = set(image_store.open_image_store(workspace.path("prepare", "images")).ids.tolist())
    assert read_ids(workspace, "pool") | read_ids(workspace, "test") == images
    assert not read_ids(workspace, "pool") & read_ids(workspace, "test")
    assert read_ids(workspace, "oracle") == read_ids(workspace, "pool")
    assert read_ids(workspace, "labeled") < read_ids(workspace, "pool")


def test_prepare_writes_the_hash_of_every_image_of_the_pool(workspace: Workspace) -> None:
    store = image_store.open_image_store(workspace.path("prepare", "images"))
    for row in tables.read_table(workspace.path("prepare", "pool"), tables.POOL).slice(0, 50).to_pylist():
        assert row["sha256"] == hashlib.sha256(store.take(np.array([row["id"]])).tobytes()).hexdigest()


def test_prepare_writes_the_same_pool_for_any_chunk_size(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables.read_table(workspace.path("prepare", "pool"), tables.POOL)
    monkeypatch.setattr(ingest, "POOL_ROWS", 100)
    workspace.run("prepare")
    assert tables.read_table(workspace.path("prepare", "pool"), tables.POOL).equals(table)


def test_prepare_writes_no_labels_to_the_pool_and_dataset_json(workspace: Workspace) -> None:
    assert tables.POOL.names == ["id", "sha256"]
    info = json.loads(workspace.path("prepare", "dataset").read_text())
    assert set(info) == {"task", "classes", "shape", "mean", "std"}


def test_prepare_takes_the_first_labels_from_the_oracle(workspace: Workspace) -> None:
    truth = {
        row["id"]: row["label"]
        for row in tables.read_table(workspace.path("prepare", "oracle"), tables.ORACLE).to_pylist()
    }
    first = tables.read_table(workspace.path("prepare", "labeled"), tables.LABELED).to_pylist()
    assert all(truth[row["id"]] == row["label"] and row["cycle"] == "init" for row in first)
    assert len(first) == round(0.10 * len(truth))


def test_prepare_is_the_same_for_another_strategy(workspace: Workspace) -> None:
    before = [path.read_bytes() for path in workspace.outputs("prepare")]
    workspace.change(**{"score.strategy": {"name": "entropy"}})
    workspace.run("prepare")
    assert [path.read_bytes() for path in workspace.outputs("prepare")] == before


def test_prepare_gives_another_split_and_other_weights_for_another_seed(workspace: Workspace) -> None:
    split, model = (workspace.path("prepare", name) for name in ("pool", "model"))
    before = split.read_bytes(), model.read_bytes()
    workspace.change(seed=1)
    workspace.run("prepare")
    assert split.read_bytes() != before[0]
    assert model.read_bytes() != before[1]


def test_prepare_warns_of_fewer_first_labels_than_classes(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.change(**{"prepare.start": 9})
    with caplog.at_level(logging.WARNING):
        workspace.run("prepare")
    assert caplog.messages == ["prepare.start: 9 first labels for 10 classes: some classes start without an example"]
    assert len(read_ids(workspace, "labeled")) == 9


def test_prepare_does_not_warn_of_one_first_label_per_class(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.change(**{"prepare.start": 10})
    workspace.run("prepare")
    assert not caplog.messages


def test_prepare_refuses_a_start_larger_than_the_pool_and_writes_nothing(workspace: Workspace) -> None:
    pool_size = len(read_ids(workspace, "pool"))
    for path in workspace.outputs("prepare"):
        path.unlink()
    workspace.change(**{"prepare.start": pool_size + 1})
    with pytest.raises(UserError) as refused:
        workspace.run("prepare")
    found = f"params.yaml: prepare.start: found {pool_size + 1}"
    assert str(refused.value) == f"{found}, but the pool has only {pool_size} images"
    assert not any(path.exists() for path in workspace.outputs("prepare"))


def test_prepare_may_label_the_whole_pool_which_leaves_nothing_to_select(workspace: Workspace) -> None:
    workspace.change(**{"prepare.start": len(read_ids(workspace, "pool"))})
    for name in ("prepare", "train", "score"):
        workspace.run(name, None if name == "prepare" else "c1")
    with pytest.raises(UserError, match="but only 0 of the pool are unlabelled"):
        workspace.run("select", "c1")


@pytest.fixture
def half_labeled(workspace: Workspace) -> Workspace:
    """A dataset of twelve images of two classes, and twelve without a label."""
    rng = np.random.default_rng(0)
    for row in range(24):
        path = Path("photos") / (f"{'ab'[row % 2]}/{row}.png" if row < 12 else f"{row}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos", "test": 0.25}, "prepare.start": 5})
    return workspace


def test_prepare_draws_the_first_labels_from_the_images_with_a_label(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    half_labeled.run("prepare")
    assert caplog.messages == [
        "12 of 21 images of the pool have no label: annotate.annotator={name: people, answers: answers.csv}"
    ]
    assert [len(read_ids(half_labeled, name)) for name in ("pool", "oracle", "test")] == [21, 9, 3]
    assert read_ids(half_labeled, "labeled") < read_ids(half_labeled, "oracle") < read_ids(half_labeled, "pool")
    first = tables.read_table(half_labeled.path("prepare", "labeled"), tables.LABELED)["label"].to_pylist()
    assert set(first) <= {0, 1}
    half_labeled.change(**{"prepare.start": 10})
    with pytest.raises(UserError, match=r"prepare.start: found 10, but the pool has only 9 images with a label$"):
        half_labeled.run("prepare")


def test_prepare_with_a_start_of_all_labels_every_image_with_a_label(half_labeled: Workspace) -> None:
    half_labeled.change(**{"prepare.start": "all"})
    half_labeled.run("prepare")
    assert read_ids(half_labeled, "labeled") == read_ids(half_labeled, "oracle") < read_ids(half_labeled, "pool")
    half_labeled.change(**{"prepare.dataset": {"name": "digits"}})
    half_labeled.run("prepare")
    assert read_ids(half_labeled, "labeled") == read_ids(half_labeled, "oracle") == read_ids(half_labeled, "pool")


@pytest.mark.parametrize("size", [9, 130])  # stored raw, and as files
def test_prepare_without_all_labels_allows_a_campaign_up_to_its_report(half_labeled: Workspace, size: int) -> None:
    half_labeled.change(**{"prepare.dataset.size": size, "train.epochs": 1, "diagnose.gradients": 2})
    half_labeled.change(
        **{"select.budget": 3, "annotate.annotator": {"name": "people", "answers": "answers.csv"}}
        | params.cycle_chain(2)
    )
    shutil.rmtree("cycles")
    Path("answers.csv").write_text("\n".join(["id,label", *(f"{i},{'ab'[i % 2]}" for i in range(24))]))
    for name in half_labeled.pipeline.stage_names():
        stage, _, cycle = name.partition("@")
        half_labeled.run(stage, cycle or None)
    assert json.loads(half_labeled.path("diagnose", "diagnostics", "c1").read_text()) == {"spearman": None}
    assert json.loads(half_labeled.path("evaluate", "metrics", "c2").read_text())["labels"] == 8
    assert (half_labeled.path("report", "report") / "index.html").exists()
    assert isinstance(
        image_store.open_image_store(half_labeled.path("prepare", "images")), image_store.EncodedImageStore
    ) == (size > 128)


def test_prepare_warns_of_test_images_that_are_in_the_pool(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree("photos")
    for split in ("train", "test"):
        for kind in "ab":
            Path("photos", split, kind).mkdir(parents=True)
            color = "red" if kind == "a" else {"train": "blue", "test": "green"}[split]
            Image.new("RGB", (9, 9), color).save(Path("photos", split, kind, "1.png"))
    half_labeled.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}, "prepare.start": 2})
    half_labeled.run("prepare")
    assert caplog.messages == ["prepare.dataset: 1 of 2 test images are in the pool too, byte for byte"]
