"""Folder: images in class folders or with a labels.csv, and the error sentence for every kind of wrong input."""

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core.errors import DataError
from codline.data import image_store
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.folder import Folder


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty images of two classes, of several sizes and formats."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for row in range(20):
        name = f"{row:02}.{('jpg', 'png', 'webp')[row % 3]}"
        save_image(tmp_path / "photos" / ("cat" if row < 12 else "dog") / name, rng, (40 + row, 50))
    return tmp_path / "photos"


def save_image(path: Path, rng: np.random.Generator, size: tuple[int, int] = (40, 50), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).convert(mode).save(path)


def load(**parameters: object) -> RawDataset:
    return Folder(path="photos", **parameters).load(np.random.default_rng(0))  # type: ignore[arg-type]


def image_names(raw: RawDataset) -> list[str]:
    assert isinstance(raw.images, EncodedImages)
    return [raw.images.name(row).removeprefix("photos/") for row in range(raw.images.count)]


def labels_by_name(raw: RawDataset) -> dict[str, int]:
    return dict(sorted(zip(image_names(raw), raw.labels.tolist(), strict=True)))


def image_shape(raw: RawDataset) -> tuple[int, int, int]:
    assert isinstance(raw.images, EncodedImages)
    return raw.images.shape


def flatten(photos: Path) -> None:
    """Moves all images into one folder."""
    for path in sorted(photos.glob("*/*")):
        path.rename(photos / path.name)
    for folder in ("cat", "dog"):
        (photos / folder).rmdir()


def write_csv(photos: Path, *lines: str, header: str = "file,label", encoding: str = "utf-8") -> None:
    (photos / "labels.csv").write_text("\n".join([header, *lines]) + "\n", encoding=encoding)


def test_folder_takes_subfolders_as_classes_and_hashes_as_ids(photos: Path) -> None:
    raw = load()
    assert raw.classes == ("cat", "dog")
    files = sorted(path.relative_to(photos).as_posix() for path in photos.glob("*/*"))
    assert labels_by_name(raw) == dict(zip(files, [0] * 12 + [1] * 8, strict=True))
    assert 0 < raw.is_test.sum() < 20
    assert image_shape(raw) == (3, 224, 224)
    digests = {name: hashlib.sha256((photos / name).read_bytes()).digest() for name in files}
    ids = {name: int.from_bytes(digest[:8], "big") >> 1 for name, digest in digests.items()}
    assert raw.ids.tolist() == sorted(ids.values())
    assert raw.files is not None
    assert {row["file"]: row["id"] for row in raw.files.to_pylist()} == ids
    assert isinstance(raw.images, EncodedImages)
    for row, name in enumerate(image_names(raw)):
        assert raw.ids[row] == ids[name]
        assert raw.images.read(row) == (photos / name).read_bytes()


def test_folder_images_can_be_stored(photos: Path, tmp_path: Path) -> None:
    raw = load(size=150)
    stored = image_store.write_images(tmp_path / "images", np.arange(20), raw.images)
    assert image_store.open_image_store(tmp_path / "images").take(np.array([19, 0])).shape == (2, 3, 150, 150)
    assert len(set(stored.hashes)) == 20


def test_folder_keeps_a_small_common_size_and_gray_images(photos: Path) -> None:
    for number, path in enumerate(photos.glob("*/*")):
        save_image(path, np.random.default_rng(number), (28, 30), "L" if path.suffix == ".png" else "RGB")
    assert image_shape(load()) == (3, 28, 30)
    for number, path in enumerate(list(photos.glob("*/*"))):
        path.unlink()
        save_image(path.with_suffix(".png"), np.random.default_rng(number), (28, 30), "L")
    assert image_shape(load()) == (1, 28, 30)
    assert image_shape(load(channels=3, size=[32, 16])) == (3, 32, 16)


def test_folder_takes_train_and_test_folders_as_the_split(photos: Path) -> None:
    photos.rename(photos.parent / "train")
    photos.mkdir()
    (photos.parent / "train").rename(photos / "train")
    (photos / "test").mkdir()
    for kind, name in (("cat", "00.jpg"), ("dog", "12.jpg")):
        (photos / "test" / kind).mkdir()
        (photos / "train" / kind / name).rename(photos / "test" / kind / name)
    raw = load()
    assert raw.classes == ("cat", "dog")
    assert sorted(np.array(image_names(raw))[raw.is_test]) == ["test/cat/00.jpg", "test/dog/12.jpg"]
    assert load(test=0.5).is_test.sum() > 2
    (photos / "test").rename(photos / "held")
    assert load(test="held").is_test.sum() == 2
    (photos / "held").rename(photos / "test")
    save_image(photos / "val/cat/1.png", np.random.default_rng(0))
    expected = "expected two folders, one of them test, with a folder per class in each"
    with pytest.raises(DataError, match=f"^photos: found test and beside it train, val; {expected}$"):
        load()


def test_folder_takes_labels_from_a_csv_and_leaves_other_images_unlabeled(photos: Path) -> None:
    flatten(photos)
    write_csv(
        photos, "00.jpg,hund", "./01.png, katze ", f"{photos}/02.webp,hund", "photos/03.jpg,Żaba", "04.png,", "05.webp"
    )
    raw = load(test=0.5)
    assert raw.classes == ("hund", "katze", "Żaba")
    assert list(labels_by_name(raw).values()) == [0, 1, 0, 2] + [-1] * 16
    assert 0 < raw.is_test.sum() < 4
    assert (raw.labels[raw.is_test] >= 0).all()


def test_folder_takes_a_csv_elsewhere_with_splits_and_files_without_a_suffix(photos: Path) -> None:
    flatten(photos)
    (photos / "00.jpg").rename(photos / "zero")
    write_csv(photos, "zero,a,test", "01.png,b,train", "02.webp,a,train", header="\ufefffile,Label,split")
    (photos / "labels.csv").rename(photos.parent / "mine.csv")
    raw = load(labels="mine.csv")
    assert np.array(image_names(raw))[raw.is_test].tolist() == ["zero"]
    assert len(raw.is_test) == 20
    assert Folder(path="photos", labels="mine.csv").input_paths() == {"images": "photos", "labels": "mine.csv"}


def test_folder_leaves_images_outside_of_class_folders_unlabeled(photos: Path) -> None:
    save_image(photos / "who.png", np.random.default_rng(0))
    labels = labels_by_name(load())
    assert list(labels.values()) == [0] * 12 + [1] * 8 + [-1]
    assert labels["who.png"] == -1


def test_folder_warns_once_of_files_that_are_no_images(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (".DS_Store", "cat/.hidden.jpg", "dog/notes.txt", "dog/more.TXT", "README", ".git/objects/aa.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_text("nothing")
    assert len(load().labels) == 20
    assert caplog.messages == ["photos: 20 images; ignored: 2 .txt, 2 hidden, 1 without a suffix"]


def test_folder_follows_links(photos: Path) -> None:
    (photos / "dog").rename(photos.parent / "elsewhere")
    (photos / "dog").symlink_to(photos.parent / "elsewhere")
    assert list(labels_by_name(load()).values()) == [0] * 12 + [1] * 8


def add_unreadable_files(photos: Path) -> None:
    (photos / "cat/00.jpg").write_bytes((photos / "cat/00.jpg").read_bytes()[:700])
    (photos / "cat/01.png").write_bytes(b"")
    (photos / "dog/12.jpg").write_text("this is not a photograph")
    (photos / "dog/lost.png").symlink_to("nowhere.png")
    (photos / "dog/loop.png").symlink_to("loop.png")
    Image.new("RGB", (1, 1)).save(photos / "dog/pixel.png")


def test_folder_refuses_all_unreadable_files_in_one_error(photos: Path) -> None:
    add_unreadable_files(photos)
    with pytest.raises(DataError) as refused:
        load()
    sentence = str(refused.value)
    assert sentence.startswith("photos: 6 of 23 images cannot be used: cat/00.jpg: not an image that can be read (")
    for part in (
        "cat/01.png: found 0 bytes, expected an image",
        "dog/12.jpg: not an image that can be read (of no known format)",
        "dog/loop.png: cannot be read (Too many levels of symbolic links)",
        "dog/lost.png: cannot be read (No such file or directory) and 1 more "
        "(.codline/unreadable/prepare.json lists them all)",
        "; remove or repair them, or set prepare.dataset.unreadable=skip",
    ):
        assert part in sentence
    problems = json.loads(Path(".codline/unreadable/prepare.json").read_text())
    assert problems["dog/pixel.png"] == "1x1 pixels, expected at least 8 a side"


def test_folder_can_skip_unreadable_files(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_unreadable_files(photos)
    raw = load(unreadable="skip")
    assert sorted(image_names(raw))[:2] == ["cat/02.webp", "cat/03.jpg"]
    assert len(raw.labels) == 17
    assert caplog.messages[0].endswith("they are skipped")
    shutil.rmtree(photos)
    only_image = photos / "cat/a.png"
    only_image.parent.mkdir(parents=True)
    only_image.write_bytes(b"")
    with pytest.raises(DataError, match="1 of 1 images cannot be used"):
        load(unreadable="skip")


def test_folder_names_a_missing_csv(photos: Path) -> None:
    with pytest.raises(DataError, match=r"^mine.csv: cannot be read \(No such file or directory\)$"):
        load(labels="mine.csv")


@pytest.fixture
def folder_without_root() -> Iterator[Path]:
    """A folder for tests that run without root's permissions; these are restored afterwards."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)


def test_folder_names_a_subfolder_without_read_permission(photos: Path, folder_without_root: Path) -> None:
    (folder_without_root / "cat").mkdir(mode=0o311)
    if os.geteuid() == 0:
        os.seteuid(65534)
    folder = folder_without_root
    with pytest.raises(DataError, match=rf"^{folder}/cat: this folder cannot be read \(Permission denied\)$"):
        Folder(path=str(folder)).load(np.random.default_rng(0))


def test_folder_reports_progress_while_files_are_inspected(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load()
    note = json.loads(Path(".codline/progress/prepare.json").read_text())
    assert (note["unit"], note["done"], note["total"]) == ("files", 20, 20)
    assert not caplog.messages


def test_folder_refuses_a_test_share_that_leaves_nothing_for_training(photos: Path) -> None:
    write_csv(photos, "cat/00.jpg,a", "cat/01.png,b")
    with pytest.raises(DataError, match=r"^photos: 0\.99999 of 2 labelled images leaves none for training, expected"):
        load(test=0.99999)


def by_id(raw: RawDataset) -> dict[int, tuple[int, bool]]:
    return dict(zip(raw.ids.tolist(), zip(raw.labels.tolist(), raw.is_test.tolist(), strict=True), strict=True))


def test_folder_keeps_ids_labels_and_split_when_files_are_added_renamed_or_removed(photos: Path) -> None:
    before = load()
    names = dict(zip(image_names(before), before.ids.tolist(), strict=True))
    save_image(photos / "cat/000.png", np.random.default_rng(9))
    save_image(photos / "without a label.png", np.random.default_rng(10))
    (photos / "dog/12.jpg").rename(photos / "dog/a new name.jpg")
    (photos / "cat/01.png").unlink()
    after = load()
    expected = {i: value for i, value in by_id(before).items() if i != names["cat/01.png"]}
    assert {i: value for i, value in by_id(after).items() if i in by_id(before)} == expected
    assert len(after.ids) == 21
    assert after.files is not None
    renamed = after.files.filter(after.files["id"].to_numpy() == names["dog/12.jpg"])
    assert renamed["file"].to_pylist() == ["dog/a new name.jpg"]


def test_folder_takes_identical_files_as_one_image_and_tells_it(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = by_id(load())
    shutil.copy(photos / "cat/00.jpg", photos / "cat/copy.jpg")
    shutil.copy(photos / "cat/00.jpg", photos / "cat/another.jpg")
    shutil.copy(photos / "dog/12.jpg", photos / "twelve.jpg")
    raw = load()
    assert by_id(raw) == before
    assert caplog.messages == [
        "photos: images with several names (identical files) are used once each (2): "
        "cat/00.jpg = cat/another.jpg and 1 more, dog/12.jpg = twelve.jpg"
    ]
    assert raw.files is not None
    assert len(raw.files) == 23
    keys = [(row["id"], row["file"]) for row in raw.files.to_pylist()]
    assert keys == sorted(keys)


def test_folder_refuses_identical_files_with_different_labels_or_leaves_them_out(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = by_id(load())
    shutil.copy(photos / "cat/00.jpg", photos / "dog/copy.jpg")
    sentence = (
        "photos: identical files with different labels (1): cat/00.jpg (cat) and dog/copy.jpg (dog); "
        "correct or remove them, or leave them out with prepare.dataset.conflicts=skip"
    )
    with pytest.raises(DataError, match=f"^{re.escape(sentence)}$"):
        load()
    raw = load(conflicts="skip")
    assert "; they are left out" in caplog.messages[0]
    assert len(raw.ids) == 19
    assert by_id(raw).items() < before.items()


def test_folder_keeps_an_image_of_both_parts_in_the_test_split(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "train").mkdir()
    for kind in ("cat", "dog"):
        (photos / kind).rename(photos / "train" / kind)
        (photos / "test" / kind).mkdir(parents=True)
    shutil.copy(photos / "train/cat/00.jpg", photos / "test/cat/leaked.jpg")
    (photos / "train/dog/12.jpg").rename(photos / "test/dog/12.jpg")
    raw = load()
    names = np.array(image_names(raw))[raw.is_test].tolist()
    assert sorted(names) == ["test/cat/leaked.jpg", "test/dog/12.jpg"]
    assert len(raw.ids) == 20
    assert caplog.messages[1] == (
        "photos: images in the test split and in the training part are used for testing only (1): "
        "test/cat/leaked.jpg = train/cat/00.jpg"
    )


def test_folder_names_pictures_that_cannot_be_read_and_the_cure(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(6):
        (photos / f"dog/{number}.HEIC").write_bytes(b"....ftypheic")
    (photos / "cat/1.NEF").write_bytes(b"raw")
    assert len(load().ids) == 20
    convert = "convert them to JPEG, for example with ImageMagick: mogrify -format jpg *.heic"
    listed = "cat/1.NEF, dog/0.HEIC, dog/1.HEIC, dog/2.HEIC, dog/3.HEIC and 2 more"
    assert caplog.messages == [f"photos: pictures that cannot be read are left out (7): {listed}; {convert}"]
    write_csv(photos, "dog/0.HEIC,dog", "cat/00.jpg,cat")
    with pytest.raises(DataError, match=rf"dog/0.HEIC: not an image that can be read .*{re.escape(convert)}"):
        load()
    for path in (*photos.glob("*/*.jpg"), *photos.glob("*/*.png"), *photos.glob("*/*.webp"), photos / "labels.csv"):
        path.unlink()
    with pytest.raises(DataError, match=rf"found no image .* \(other files: 7\); .*{re.escape(convert)}"):
        load()


def test_folder_expands_the_home_directory(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(photos.parent))
    assert Folder(path="~/photos").input_paths() == {"images": str(photos)}


def test_folder_and_labels_may_be_in_the_home_directory(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(photos.parent))
    rows = [f"{path.relative_to(photos)},{path.parent.name}" for path in sorted(photos.glob("*/*"))]
    (photos.parent / "mine.csv").write_text("\n".join(["file,label", *rows]))
    raw = Folder(path="~/photos", labels="~/mine.csv").load(np.random.default_rng(0))
    assert raw.classes == ("cat", "dog")
