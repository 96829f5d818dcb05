"""prepare: the pool without labels, the true labels in other files, and a split that depends on the seed only."""

import hashlib
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from codline.core import params
from codline.core.errors import PoolUsedUp, UserError
from codline.data import image_store, ingest, tables
from tests.workspace import Workspace


def read_ids(workspace: Workspace, argument: str) -> set[int]:
    schema = getattr(tables, argument.upper())
    return set(tables.read_table(workspace.path("prepare", argument), schema)["id"].to_pylist())


def test_prepare_splits_all_images_into_pool_validation_and_test(workspace: Workspace) -> None:
    images = image_store.open_image_store(workspace.path("prepare", "images")).ids.tolist()
    splits = [read_ids(workspace, name) for name in ("pool", "validation", "test")]
    assert all(splits)
    assert sorted(image for split in splits for image in split) == images
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
    workspace.run("prepare")
    workspace.run("train", "c1")
    with pytest.raises(PoolUsedUp, match="every image of the pool has a label, so there is nothing left to select"):
        workspace.run("score", "c1")


def save_noise(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 9, 3), np.uint8)).save(path)


@pytest.fixture
def half_labeled(workspace: Workspace) -> Workspace:
    """A dataset of twelve images of two classes, and twelve without a label."""
    for row in range(24):
        save_noise(Path("photos") / (f"{'ab'[row % 2]}/{row}.png" if row < 12 else f"{row}.png"), row)
    workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos", "test": 0.25}, "prepare.start": 5})
    workspace.change(**{"prepare.validation": 0})
    return workspace


def test_prepare_draws_the_first_labels_from_the_images_with_a_label(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    half_labeled.run("prepare")
    pool, oracle, test = (len(read_ids(half_labeled, name)) for name in ("pool", "oracle", "test"))
    hint = "people label them (annotate.annotator={name: people})"
    assert caplog.messages == [f"12 of {pool} images of the pool have no label; {hint}"]
    assert (pool, oracle) == (24 - test, 12 - test)
    assert read_ids(half_labeled, "labeled") < read_ids(half_labeled, "oracle") < read_ids(half_labeled, "pool")
    first = tables.read_table(half_labeled.path("prepare", "labeled"), tables.LABELED)["label"].to_pylist()
    assert set(first) <= {0, 1}
    half_labeled.change(**{"prepare.start": 12})
    with pytest.raises(
        UserError, match=rf"prepare.start: found 12, but the pool has only {oracle} images with a label$"
    ):
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
    half_labeled.change(**{"select.budget": 3} | params.cycle_chain(2))
    half_labeled.ask_people()
    shutil.rmtree("cycles")
    half_labeled.run("prepare")
    Path("answers").mkdir()
    for name in [name for name in half_labeled.pipeline.stage_names() if "@c" in name or name == "report"]:
        stage, _, cycle = name.partition("@")
        if stage == "annotate":
            ids = tables.read_table(half_labeled.path("select", "query", cycle), tables.QUERY)["id"].to_pylist()
            Path(f"answers/{cycle}.csv").write_text("\n".join(["id,label", *(f"{i},{'ab'[i % 2]}" for i in ids)]))
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
    Image.new("RGB", (9, 9), "red").save(Path("photos/train/a/1.png"), pnginfo=comment("the same pixels"))
    half_labeled.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}, "prepare.start": 2})
    half_labeled.run("prepare")
    assert caplog.messages == ["prepare.dataset: 1 of 2 test images are in the pool too, byte for byte"]


def comment(text: str) -> PngInfo:
    info = PngInfo()
    info.add_text("Comment", text)
    return info


def table_bytes(workspace: Workspace, *arguments: str) -> list[bytes]:
    return [workspace.path("prepare", argument).read_bytes() for argument in arguments]


def test_prepare_writes_the_same_pool_and_splits_after_a_rename(half_labeled: Workspace) -> None:
    half_labeled.run("prepare")
    unchanged = [path for path in half_labeled.outputs("prepare") if path.name != "files.parquet"]
    before, files = [path.read_bytes() for path in unchanged], table_bytes(half_labeled, "files")
    Path("photos/a/0.png").rename("photos/a/zero.png")
    half_labeled.run("prepare")
    assert [path.read_bytes() for path in unchanged] == before
    assert table_bytes(half_labeled, "files") != files


def test_prepare_moves_no_other_image_when_files_are_added_and_removed(half_labeled: Workspace) -> None:
    half_labeled.change(**{"prepare.start": 0.5, "prepare.validation": 0.3})
    half_labeled.run("prepare")
    names = ("pool", "oracle", "validation", "test", "labeled")
    before = {name: read_ids(half_labeled, name) for name in names}
    files = tables.read_table(half_labeled.path("prepare", "files"), tables.FILES).to_pylist()
    removed = {row["id"] for row in files if row["file"] in ("a/0.png", "20.png")}
    for name in ("a/0.png", "20.png"):
        Path("photos", name).unlink()
    for number in range(30):
        save_noise(Path("photos") / "ab"[number % 2] / f"0new{number}.png", 100 + number)
    half_labeled.run("prepare")
    known = set().union(*before.values())
    assert {name: read_ids(half_labeled, name) & known for name in names} == {
        name: ids - removed for name, ids in before.items()
    }
    assert len(read_ids(half_labeled, "pool") - known) > 10


def test_prepare_draws_validation_images_of_every_class(workspace: Workspace) -> None:
    truth = tables.read_table(workspace.path("prepare", "validation"), tables.VALIDATION)["label"].to_numpy()
    assert np.ptp(np.bincount(truth, minlength=10)) <= 1
    workspace.change(**{"prepare.validation": 2000})
    sentence = "prepare.validation: found 2000, but there are only 1438 labelled images outside the test split"
    with pytest.raises(UserError, match=f"{sentence}$"):
        workspace.run("prepare")


def test_prepare_names_the_classes_without_test_or_validation_images(
    half_labeled: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{path.parent.name}/{path.name},{path.parent.name},train" for path in Path("photos").glob("?/*.png")]
    lines[0] = lines[0].replace("train", "test")
    missing = "b" if lines[0].endswith(",a,test") else "a"
    Path("photos/labels.csv").write_text("\n".join(["file,label,split", *lines]))
    half_labeled.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}, "prepare.validation": 1})
    half_labeled.run("prepare")
    held_out = tables.read_table(half_labeled.path("prepare", "validation"), tables.VALIDATION)["label"][0].as_py()
    assert caplog.messages[-1] == (
        f"no test images of {missing}; no validation images of {'ba'[held_out]}: nothing is measured for these classes"
    )
