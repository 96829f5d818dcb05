"""folder: your own images, as they lie there; every wrong thing that it can be pointed at gets its sentence."""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core import params
from codline.core.errors import DataError, UserError
from codline.core.params import Section
from codline.data import image_store
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets import AnyDataset
from codline.datasets.folder import Folder


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty photographs of several sizes, formats and modes, of two classes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for row in range(20):
        photograph(
            tmp_path / "photos" / ("cat" if row < 12 else "dog") / f"{row:02}.{('jpg', 'png', 'webp')[row % 3]}",
            rng,
            (40 + row, 50),
        )
    return tmp_path / "photos"


def photograph(path: Path, rng: np.random.Generator, size: tuple[int, int] = (40, 50), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).convert(mode).save(path)


def loaded(**parameters: object) -> RawDataset:
    return Folder(path="photos", **parameters).load(np.random.default_rng(0))  # type: ignore[arg-type]


def files(raw: RawDataset) -> list[str]:
    assert isinstance(raw.images, EncodedImages)
    return [raw.images.name(row).removeprefix("photos/") for row in range(raw.images.count)]


def shape(raw: RawDataset) -> tuple[int, int, int]:
    assert isinstance(raw.images, EncodedImages)
    return raw.images.shape


def flat(photos: Path) -> None:
    """All photographs in one folder."""
    for path in sorted(photos.glob("*/*")):
        path.rename(photos / path.name)
    for folder in ("cat", "dog"):
        (photos / folder).rmdir()


def sheet(photos: Path, *lines: str, header: str = "file,label", encoding: str = "utf-8") -> None:
    (photos / "labels.csv").write_text("\n".join([header, *lines]) + "\n", encoding=encoding)


def test_folders_are_classes_and_ids_follow_the_names(photos: Path) -> None:
    raw = loaded()
    assert raw.classes == ("cat", "dog")
    assert files(raw) == sorted(path.relative_to(photos).as_posix() for path in photos.glob("*/*"))
    assert raw.labels.tolist() == [0] * 12 + [1] * 8
    assert raw.is_test.sum() == 4
    assert shape(raw) == (3, 224, 224)
    assert isinstance(raw.images, EncodedImages)
    assert raw.images.read(3) == (photos / "cat/03.jpg").read_bytes()


def test_names_need_not_be_utf_8(photos: Path) -> None:
    strange = photos / "cat" / os.fsdecode(b"caf\xe9.png")
    shutil.copy(photos / "cat" / "01.png", strange)
    raw = loaded()
    assert isinstance(raw.images, EncodedImages)
    row = files(raw).index(os.fsdecode(b"cat/caf\xe9.png"))
    assert raw.images.read(row) == strange.read_bytes()


def test_the_store_takes_them_as_they_are(photos: Path, tmp_path: Path) -> None:
    raw = loaded(size=150)
    stored = image_store.write(tmp_path / "images.arrow", np.arange(20), raw.images)
    assert image_store.opened(tmp_path / "images.arrow").take(np.array([19, 0])).shape == (2, 3, 150, 150)
    assert len(set(stored.hashes)) == 20


def test_small_images_of_one_size_keep_it_and_grey_ones_stay_grey(photos: Path) -> None:
    for path in photos.glob("*/*"):
        photograph(path, np.random.default_rng(0), (28, 30), "L" if path.suffix == ".png" else "RGB")
    assert shape(loaded()) == (3, 28, 30)
    for path in photos.glob("*/*"):
        path.unlink()
        photograph(path.with_suffix(".png"), np.random.default_rng(0), (28, 30), "L")
    assert shape(loaded()) == (1, 28, 30)
    assert shape(loaded(channels=3, size=[32, 16])) == (3, 32, 16)


def test_train_and_test_folders_are_the_split(photos: Path) -> None:
    shutil.copytree(photos, photos.parent / "all")
    shutil.rmtree(photos)
    (photos.parent / "all").rename(photos.parent / "photos_")
    shutil.copytree(photos.parent / "photos_", photos / "train")
    (photos / "test").mkdir()
    for kind, name in (("cat", "00.jpg"), ("dog", "12.jpg")):
        (photos / "test" / kind).mkdir()
        (photos / "train" / kind / name).rename(photos / "test" / kind / name)
    raw = loaded()
    assert raw.classes == ("cat", "dog")
    assert [file for file, test in zip(files(raw), raw.is_test, strict=True) if test] == [
        "test/cat/00.jpg",
        "test/dog/12.jpg",
    ]
    assert loaded(test=0.5).is_test.sum() == 10
    (photos / "test").rename(photos / "held")
    assert loaded(test="held").is_test.sum() == 2
    (photos / "held").rename(photos / "test")
    photograph(photos / "val/cat/1.png", np.random.default_rng(0))
    with pytest.raises(
        DataError,
        match=r"^photos: found test and beside it train, val; expected two folders, one of them test, with a folder per class in each$",
    ):
        loaded()


def test_a_csv_labels_some_and_the_rest_has_no_label(photos: Path) -> None:
    flat(photos)
    sheet(
        photos, "00.jpg,hund", "./01.png, katze ", f"{photos}/02.webp,hund", "photos/03.jpg,Żaba", "04.png,", "05.webp"
    )
    raw = loaded(test=0.5)
    assert raw.classes == ("hund", "katze", "Żaba")
    assert raw.labels.tolist() == [0, 1, 0, 2] + [-1] * 16
    assert raw.is_test.sum() == 2
    assert (raw.labels[raw.is_test] >= 0).all()


def test_a_csv_may_lie_elsewhere_name_the_split_and_files_without_a_suffix(photos: Path) -> None:
    flat(photos)
    (photos / "00.jpg").rename(photos / "zero")
    sheet(photos, "zero,a,test", "01.png,b,train", "02.webp,a,train", header="\ufefffile,Label,split")
    (photos / "labels.csv").rename(photos.parent / "mine.csv")
    raw = loaded(labels="mine.csv")
    assert files(raw)[-1] == "zero"
    assert raw.is_test.tolist() == [False] * 19 + [True]
    assert len(raw.is_test) == 20


def test_images_beside_the_class_folders_have_no_label(photos: Path) -> None:
    photograph(photos / "who.png", np.random.default_rng(0))
    raw = loaded()
    assert raw.labels.tolist() == [0] * 12 + [1] * 8 + [-1]
    assert files(raw)[-1] == "who.png"


def test_what_is_no_image_is_counted_once(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (".DS_Store", "cat/.hidden.jpg", "dog/notes.txt", "dog/more.TXT", "README", ".git/objects/aa.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_text("nothing")
    assert len(loaded().labels) == 20
    assert caplog.messages == ["photos: 20 images; ignored: 2 .txt, 2 hidden, 1 without a suffix"]


def test_linked_folders_and_files_are_followed(photos: Path) -> None:
    (photos / "dog").rename(photos.parent / "elsewhere")
    (photos / "dog").symlink_to(photos.parent / "elsewhere")
    assert loaded().labels.tolist() == [0] * 12 + [1] * 8


def broken(photos: Path) -> None:
    (photos / "cat/00.jpg").write_bytes((photos / "cat/00.jpg").read_bytes()[:700])
    (photos / "cat/01.png").write_bytes(b"")
    (photos / "dog/12.jpg").write_text("this is not a photograph")
    (photos / "dog/lost.png").symlink_to("nowhere.png")
    (photos / "dog/loop.png").symlink_to("loop.png")
    Image.new("RGB", (1, 1)).save(photos / "dog/pixel.png")


def test_unreadable_files_are_refused_together(photos: Path) -> None:
    broken(photos)
    with pytest.raises(DataError) as refused:
        loaded()
    sentence = str(refused.value)
    assert sentence.startswith("photos: 6 of 23 images cannot be used: cat/00.jpg: not an image that can be read (")
    for part in (
        "cat/01.png: found 0 bytes, expected an image",
        "dog/12.jpg: not an image that can be read (of no known format)",
        "dog/loop.png: cannot be read (Too many levels of symbolic links)",
        "dog/lost.png: cannot be read (No such file or directory) and 1 more (.codline/unreadable/prepare.json lists them all)",
        "; remove or repair them, or set prepare.dataset.unreadable=skip",
    ):
        assert part in sentence
    assert (
        json.loads(Path(".codline/unreadable/prepare.json").read_text())["dog/pixel.png"]
        == "1x1 pixels, expected at least 8 a side"
    )


def test_unreadable_files_can_be_skipped(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken(photos)
    raw = loaded(unreadable="skip")
    assert files(raw)[:2] == ["cat/02.webp", "cat/03.jpg"]
    assert len(raw.labels) == 17
    assert caplog.messages[0].endswith("they are skipped")
    shutil.rmtree(photos)
    broken_alone = photos / "cat/a.png"
    broken_alone.parent.mkdir(parents=True)
    broken_alone.write_bytes(b"")
    with pytest.raises(DataError, match="1 of 1 images cannot be used"):
        loaded(unreadable="skip")


def emptied(photos: Path) -> None:
    for path in photos.glob("*/*"):
        path.unlink()


def a_file(photos: Path) -> None:
    shutil.rmtree(photos)
    photos.write_text("a file")


def two_labels(photos: Path) -> None:
    sheet(photos, "cat/00.jpg,a", "cat/01.png,b", "./cat/00.jpg,b")


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, r"photos: not found; prepare.dataset.path names it, from /.*"),
    "a file": (
        a_file,
        r"photos: a file; expected a folder with images \(for a Parquet file: prepare.dataset={name: parquet, ...}\)",
    ),
    "empty": (
        lambda photos: [shutil.rmtree(photos), photos.mkdir()],
        "photos: found no file in it or its folders; expected images, such as .jpg or .png",
    ),
    "folders without images": (
        emptied,
        "photos: found no file in it or its folders; expected images, such as .jpg or .png",
    ),
    "texts": (
        lambda photos: [emptied(photos), (photos / "cat/a.txt").write_text("")],
        "photos: found 1 files, but no image in it or its folders; expected images, such as .jpg or .png",
    ),
    "one class": (lambda photos: shutil.rmtree(photos / "dog"), "photos: found one class, cat, expected at least two"),
    "a folder too high": (
        lambda photos: [
            photos.rename(photos.parent / "inner"),
            photos.mkdir(),
            (photos.parent / "inner").rename(photos / "inner"),
        ],
        r"photos: found one class, inner, expected at least two; are the classes the folders in photos/inner\?",
    ),
    "no folders": (
        flat,
        "photos: 20 images, but no folder that would name their class; expected a folder per class, or a labels.csv with the columns file and label",
    ),
    "no columns": (
        lambda photos: sheet(photos, "a;b", header="file;label"),
        "photos/labels.csv: found the columns file;label, expected file and label, with a comma between them",
    ),
    "an empty csv": (
        lambda photos: (photos / "labels.csv").write_text(""),
        "photos/labels.csv: found the columns of an empty file, expected file and label, with a comma between them",
    ),
    "a file that is not there": (
        lambda photos: sheet(photos, "cat/00.jpg,a", "cat/99.jpg,b"),
        "photos/labels.csv: line 3: 'cat/99.jpg' is not in photos",
    ),
    "two labels": (two_labels, "photos/labels.csv: line 4: cat/00.jpg is labelled b, further up a; expected one label"),
    "not UTF-8": (
        lambda photos: sheet(photos, "cat/00.jpg,größe", encoding="latin-1"),
        r"photos/labels.csv: not UTF-8 \(invalid start byte at byte 24\); save it as CSV UTF-8",
    ),
    "no labels": (
        lambda photos: sheet(photos, "cat/00.jpg,", "cat/01.png,  "),
        "photos/labels.csv: no image has a label; expected a folder per class, or a labels.csv with the columns file and label",
    ),
    "one label": (
        lambda photos: sheet(photos, "cat/00.jpg,a"),
        "photos/labels.csv: found one class, a, expected at least two",
    ),
    "too few for testing": (
        lambda photos: sheet(photos, "cat/00.jpg,a", "cat/01.png,b"),
        "photos: 0.2 of 2 labelled images leaves 0 for testing, expected at least one there and one in the pool",
    ),
    "another name for the split": (
        lambda photos: sheet(photos, "cat/00.jpg,a,training", "cat/01.png,b,testing", header="file,label,split"),
        r"photos: found no test images \(looked for test, found testing, training\); prepare.dataset.test may name another",
    ),
    "all for testing": (
        lambda photos: sheet(
            photos,
            *(f"{p.relative_to(photos)},{p.parent.name},test" for p in photos.glob("*/*")),
            header="file,label,split",
        ),
        r"photos: found nothing but test images \(looked for test, found test\); prepare.dataset.test may name another",
    ),
    "a test image without a label": (
        lambda photos: sheet(
            photos, "cat/00.jpg,a,train", "cat/01.png,b,train", "dog/12.jpg,,test", header="file,label,split"
        ),
        "photos: 1 test images have no label, such as dog/12.jpg; expected one for each",
    ),
    "a link to itself": (
        lambda photos: (photos / "cat/again").symlink_to(photos),
        "photos/cat/again: a link to a folder that it lies in itself, so there is no end to it; remove the link",
    ),
}


@pytest.mark.parametrize(("spoil", "sentence"), WRONG.values(), ids=list(WRONG))
def test_every_wrong_thing_gets_its_sentence(photos: Path, spoil: Callable[[Path], object], sentence: str) -> None:
    spoil(photos)
    with pytest.raises(DataError, match=f"^{sentence}$"):
        loaded()


def test_a_csv_that_is_not_there_is_named(photos: Path) -> None:
    with pytest.raises(DataError, match=r"^mine.csv: cannot be read \(No such file or directory\)$"):
        loaded(labels="mine.csv")


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder, seen by somebody who is not root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)


def test_a_folder_that_one_may_not_read_is_named(photos: Path, nobody: Path) -> None:
    (nobody / "cat").mkdir(mode=0o311)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(DataError, match=rf"^{nobody}/cat: this folder cannot be read \(Permission denied\)$"):
        Folder(path=str(nobody)).load(np.random.default_rng(0))


class Holder(Section):
    dataset: AnyDataset


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"test": 1.5},
            "test: found 1.5, expected a share of the labelled images (more than 0, less than 1), or the name of a folder or of a split",
        ),
        ({"size": 4}, "size: found 4, expected the pixels of a side, at least 8, or [height, width]"),
        ({"size": [64, 0]}, "size: found [64, 0], expected the pixels of a side, at least 8, or [height, width]"),
        ({"channels": 2}, "channels: found 2, expected 'auto', 1 or 3"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        params.parsed({"dataset": {"name": "folder", "path": "photos"} | given}, Holder, "prepare")
    assert str(refused.value).startswith(f"params.yaml: prepare.dataset.{sentence}")


def test_progress_is_told_while_files_are_looked_at(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        loaded()
    assert json.loads(Path(".codline/progress/prepare.json").read_text()) == {"unit": "files", "done": 20, "total": 20}
    assert not caplog.messages
