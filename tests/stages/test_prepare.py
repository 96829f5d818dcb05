"""prepare: the pool without labels, the truth apart from it, and a start that follows from the seed."""

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
from codline.data import image_store, tables
from stages import prepare
from tests.workspace import Workspace


def ids(workspace: Workspace, argument: str) -> set[int]:
    schema = {"pool": tables.POOL, "oracle": tables.ORACLE, "test": tables.TEST, "labeled": tables.LABELED}[argument]
    return set(tables.read(workspace.path("prepare", argument), schema)["id"].to_pylist())


def test_test_and_pool_share_no_image_and_are_everything(workspace: Workspace) -> None:
    everyone = set(image_store.opened(workspace.path("prepare", "images")).ids.tolist())
    assert ids(workspace, "pool") | ids(workspace, "test") == everyone
    assert not ids(workspace, "pool") & ids(workspace, "test")
    assert ids(workspace, "oracle") == ids(workspace, "pool")
    assert ids(workspace, "labeled") < ids(workspace, "pool")


def test_the_pool_holds_the_hash_of_every_image(workspace: Workspace) -> None:
    store = image_store.opened(workspace.path("prepare", "images"))
    for row in tables.read(workspace.path("prepare", "pool"), tables.POOL).slice(0, 50).to_pylist():
        assert row["sha256"] == hashlib.sha256(store.take(np.array([row["id"]])).tobytes()).hexdigest()


def test_the_pool_is_the_same_however_many_of_its_rows_are_written_together(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.read(workspace.path("prepare", "pool"), tables.POOL)
    monkeypatch.setattr(prepare, "ROWS", 100)
    workspace.run("prepare")
    assert tables.read(workspace.path("prepare", "pool"), tables.POOL).equals(table)


def test_no_file_but_oracle_test_and_the_first_labels_knows_a_label(workspace: Workspace) -> None:
    assert tables.POOL.names == ["id", "sha256"]
    assert set(json.loads(workspace.path("prepare", "dataset").read_text())) == {
        "task",
        "classes",
        "shape",
        "mean",
        "std",
    }


def test_first_labels_are_the_truth(workspace: Workspace) -> None:
    truth = {
        row["id"]: row["label"] for row in tables.read(workspace.path("prepare", "oracle"), tables.ORACLE).to_pylist()
    }
    first = tables.read(workspace.path("prepare", "labeled"), tables.LABELED).to_pylist()
    assert all(truth[row["id"]] == row["label"] and row["cycle"] == "init" for row in first)
    assert len(first) == round(0.10 * len(truth))


def test_another_strategy_starts_from_the_same_split_and_weights(workspace: Workspace) -> None:
    before = [path.read_bytes() for path in workspace.outputs("prepare")]
    workspace.change(**{"score.strategy": {"name": "entropy"}})
    workspace.run("prepare")
    assert [path.read_bytes() for path in workspace.outputs("prepare")] == before


def test_another_seed_gives_another_split_and_other_weights(workspace: Workspace) -> None:
    split, model = (workspace.path("prepare", name) for name in ("pool", "model"))
    before = split.read_bytes(), model.read_bytes()
    workspace.change(seed=1)
    workspace.run("prepare")
    assert split.read_bytes() != before[0]
    assert model.read_bytes() != before[1]


def test_a_start_below_one_per_class_is_warned_of(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    workspace.change(**{"prepare.start": 9})
    with caplog.at_level(logging.WARNING):
        workspace.run("prepare")
    assert caplog.messages == ["prepare.start: 9 first labels for 10 classes: some classes start without an example"]
    assert len(ids(workspace, "labeled")) == 9


def test_a_start_of_one_per_class_is_not_warned_of(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    workspace.change(**{"prepare.start": 10})
    workspace.run("prepare")
    assert not caplog.messages


def test_a_start_larger_than_the_pool_is_refused_before_anything_is_written(workspace: Workspace) -> None:
    everyone = len(ids(workspace, "pool"))
    for path in workspace.outputs("prepare"):
        path.unlink()
    workspace.change(**{"prepare.start": everyone + 1})
    with pytest.raises(UserError) as refused:
        workspace.run("prepare")
    assert (
        str(refused.value)
        == f"params.yaml: prepare.start: found {everyone + 1}, but the pool has only {everyone} images"
    )
    assert not any(path.exists() for path in workspace.outputs("prepare"))


def test_a_pool_that_is_all_labelled_leaves_nothing_to_ask_for(workspace: Workspace) -> None:
    workspace.change(**{"prepare.start": len(ids(workspace, "pool"))})
    for name in ("prepare", "train", "score"):
        workspace.run(name, None if name == "prepare" else "c1")
    with pytest.raises(UserError, match="but only 0 of the pool are unlabelled"):
        workspace.run("select", "c1")


@pytest.fixture
def half_labeled(workspace: Workspace) -> Workspace:
    """Twelve photographs of two classes, and twelve that nobody has looked at."""
    rng = np.random.default_rng(0)
    for row in range(24):
        path = Path("photos") / (f"{'ab'[row % 2]}/{row}.png" if row < 12 else f"{row}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos", "test": 0.25}, "prepare.start": 5})
    return workspace


def test_first_labels_are_drawn_among_those_that_are_known(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    half_labeled.run("prepare")
    assert caplog.messages == [
        "12 of 21 images of the pool have no label: annotate.annotator={name: people, answers: answers.csv}"
    ]
    assert (len(ids(half_labeled, "pool")), len(ids(half_labeled, "oracle")), len(ids(half_labeled, "test"))) == (
        21,
        9,
        3,
    )
    assert ids(half_labeled, "labeled") < ids(half_labeled, "oracle") < ids(half_labeled, "pool")
    first = tables.read(half_labeled.path("prepare", "labeled"), tables.LABELED)["label"].to_pylist()
    assert set(first) <= {0, 1}
    half_labeled.change(**{"prepare.start": 10})
    with pytest.raises(UserError, match=r"prepare.start: found 10, but the pool has only 9 images with a label$"):
        half_labeled.run("prepare")


def test_a_start_of_all_is_every_image_that_has_a_label(half_labeled: Workspace) -> None:
    half_labeled.change(**{"prepare.start": "all"})
    half_labeled.run("prepare")
    assert ids(half_labeled, "labeled") == ids(half_labeled, "oracle") < ids(half_labeled, "pool")
    half_labeled.change(**{"prepare.dataset": {"name": "digits"}})
    half_labeled.run("prepare")
    assert ids(half_labeled, "labeled") == ids(half_labeled, "oracle") == ids(half_labeled, "pool")


@pytest.mark.parametrize("size", [9, 130])  # stored raw, and as files
def test_a_campaign_whose_truth_nobody_knows_comes_to_its_report(half_labeled: Workspace, size: int) -> None:
    half_labeled.change(**{"prepare.dataset.size": size})
    half_labeled.change(
        **{"select.budget": 3, "annotate.annotator": {"name": "people", "answers": "answers.csv"}} | params.chain(2)
    )
    shutil.rmtree("cycles")
    Path("answers.csv").write_text("\n".join(["id,label", *(f"{i},{'ab'[i % 2]}" for i in range(24))]))
    for name in half_labeled.pipeline.names():
        stage, _, cycle = name.partition("@")
        half_labeled.run(stage, cycle or None)
    assert json.loads(half_labeled.path("diagnose", "diagnostics", "c1").read_text()) == {"spearman": None}
    assert json.loads(half_labeled.path("evaluate", "metrics", "c2").read_text())["labels"] == 8
    assert (half_labeled.path("report", "report") / "index.html").exists()
    assert isinstance(image_store.opened(half_labeled.path("prepare", "images")), image_store.Encoded) == (size > 128)


def test_images_that_are_in_the_pool_and_for_testing_are_counted(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree("photos")
    for split in ("train", "test"):
        for kind in "ab":
            Path("photos", split, kind).mkdir(parents=True)
            Image.new("RGB", (9, 9), "red" if kind == "a" else ("green" if split == "test" else "blue")).save(
                Path("photos", split, kind, "1.png")
            )
    half_labeled.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}, "prepare.start": 2})
    half_labeled.run("prepare")
    assert caplog.messages == ["prepare.dataset: 1 of 2 test images are in the pool too, byte for byte"]
