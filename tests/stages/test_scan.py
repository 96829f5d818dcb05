"""scan: a manifest of an input, which changes with any file, and which prepare holds what it has read against."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from codline.core import params
from codline.core.errors import DataError, UserError
from codline.data import input_files, tables
from codline.runtime import state_directory
from tests.workspace import Workspace, create_workspace


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Twelve images of two classes."""
    workspace = create_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    for row in range(12):
        path = Path("photos") / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(row).integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}, "inputs": {"images": "photos"}})
    workspace.change(**{"prepare.start": 0.5, "prepare.validation": 0})
    return workspace


def manifest(workspace: Workspace) -> dict[str, str]:
    workspace.run("scan", "images")
    table = tables.read_table(Path("data/inputs/images.parquet"), tables.MANIFEST)
    return dict(zip(table["file"].to_pylist(), table["sha256"].to_pylist(), strict=True))


def test_scan_lists_every_file_with_its_hash(here: Workspace) -> None:
    (Path("photos") / "notes.txt").write_text("not an image")
    (Path("photos") / "a/lost.png").symlink_to("nowhere")
    found = manifest(here)
    assert found.pop("a/lost.png") == ""
    assert list(found) == sorted(str(p.relative_to("photos")) for p in Path("photos").rglob("*.*") if p.exists())
    assert found["a/0.png"] == input_files.file_sha256(Path("photos/a/0.png"))


def test_scan_of_a_file_lists_it_by_its_name(here: Workspace) -> None:
    Path("labels.csv").write_text("file,label\n")
    here.change(inputs={"images": "labels.csv"})
    assert list(manifest(here)) == ["labels.csv"]


def test_scan_writes_the_same_bytes_with_and_without_known_hashes(here: Workspace) -> None:
    files = []
    for _ in range(2):
        here.run("scan", "images")
        files.append(Path("data/inputs/images.parquet").read_bytes())
    (state_directory.state_root() / "scan/images.parquet").write_bytes(b"damaged")
    here.run("scan", "images")
    assert files[0] == files[1] == Path("data/inputs/images.parquet").read_bytes()


def test_scan_reads_only_files_that_have_changed(here: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = manifest(here), list[str]()
    hash_file = input_files.hash_file
    monkeypatch.setattr(input_files, "hash_file", lambda path: (read.append(path.name), hash_file(path))[1])
    Path("photos/a/0.png").rename("photos/a/renamed.png")
    shutil.copy("photos/a/2.png", "photos/a/copy.png")
    Path("photos/b/1.png").write_bytes(Path("photos/b/3.png").read_bytes())
    Path("photos/b/5.png").unlink()
    after = manifest(here)
    assert sorted(read) == ["1.png", "copy.png"]
    assert after["a/renamed.png"] == before["a/0.png"]
    assert after["b/1.png"] == after["b/3.png"]
    assert len(after) == 12


def test_scan_notices_another_file_with_the_same_size_and_time(here: Workspace) -> None:
    before, path = manifest(here), Path("photos/a/0.png")
    status = path.stat()
    replaced = path.with_name("new")
    replaced.write_bytes(path.read_bytes()[:-1] + b"x")
    replaced.replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert manifest(here)["a/0.png"] != before["a/0.png"]


def test_scan_names_an_input_that_params_yaml_does_not_have(here: Workspace) -> None:
    with pytest.raises(UserError, match=r"^params.yaml: inputs.labels: missing$"):
        here.run("scan", "images", input="labels")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda: Path("photos/a/0.png").write_bytes(Path("photos/a/2.png").read_bytes()), "a/0.png was changed"),
        (lambda: shutil.copy("photos/a/0.png", "photos/a/new.png"), "a/new.png was added"),
        (lambda: Path("photos/b/1.png").unlink(), "b/1.png was removed"),
    ],
)
def test_prepare_refuses_files_that_changed_since_the_scan(
    here: Workspace, monkeypatch: pytest.MonkeyPatch, change: object, difference: str
) -> None:
    assert callable(change)
    load = type(here).scan_inputs

    def scan_then_change(workspace: Workspace) -> None:
        load(workspace)
        change()

    monkeypatch.setattr(type(here), "scan_inputs", scan_then_change)
    with pytest.raises(DataError, match=f"^photos: {difference} since scan@images has read it; run again$"):
        here.run("prepare")


def test_prepare_refuses_inputs_that_do_not_follow_from_the_dataset(
    here: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(here), "scan_inputs", lambda _: None)
    for inputs, found in ({"images": "other"}, "images: other"), ({}, "none"):
        here.change(inputs=inputs)
        sentence = f"params.yaml: inputs: found {found}, expected images: photos, as in prepare.dataset"
        with pytest.raises(UserError, match=f"^{sentence}; `codline run` writes it$"):
            here.run("prepare")


def test_prepare_refuses_a_manifest_of_another_input(here: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    here.run("scan", "images")
    monkeypatch.setattr(type(here), "scan_inputs", lambda _: None)
    tables.write_table(
        pa.table([["a"], [1], ["b"]], schema=tables.MANIFEST), tables.MANIFEST, Path("data/inputs/x.parquet")
    )
    with pytest.raises(DataError, match=r"^data/inputs/x.parquet: not of an input in params.yaml; delete it"):
        here.run("prepare")


@pytest.mark.parametrize("name", ["Images", "a b", "../x"])
def test_inputs_have_names_that_need_no_quotes(name: str) -> None:
    with pytest.raises(UserError, match=r"^params.yaml: inputs"):
        params.parse_inputs({"inputs": {name: "photos"}})
