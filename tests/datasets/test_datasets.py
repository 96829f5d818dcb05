"""The public datasets: torchvision's own code on files in the official formats, the paper's splits, and the real files where they are at hand."""

import io
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import TypeAdapter
from torchvision import datasets

from codline.core.errors import DataError, UserError
from codline.data import downloads
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets import AnyDataset, caltech101
from codline.datasets.base import duplicates
from tests import official
from tests.workspace import Workspace

DATA = Path(os.environ.get("CODLINE_TEST_DATA", "nowhere"))
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="CODLINE_TEST_DATA names no folder")
each = pytest.mark.parametrize("name", official.WRITERS)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """small("svhn", pool=3) is SVHN with a few images on disk."""

    def made(name: str, **own: Any) -> Any:
        return spec(name, **official.written(name, tmp_path, monkeypatch) | own)

    return made


def spec(name: str, **own: Any) -> Any:
    return TypeAdapter(AnyDataset).validate_python({"name": name} | own)


def loaded(dataset: Any, seed: int = 0) -> RawDataset:
    raw: RawDataset = dataset.load(np.random.default_rng(seed))
    return raw


def rows(raw: RawDataset) -> list[bytes]:
    if isinstance(raw.images, EncodedImages):
        return [raw.images.read(row) for row in range(raw.images.count)]
    return [image.tobytes() for image in raw.images]


def sizes(raw: RawDataset) -> tuple[int, int]:
    return int((~raw.is_test).sum()), int(raw.is_test.sum())


def test_the_paper_s_table_of_datasets_is_met() -> None:
    """Training images less those for validation are the paper's `train`; Caltech-101 has too few images for that, as its docstring says."""
    trained = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257}
    assert {name: many - spec(name).validation for name, many in trained.items()} == {
        "cifar10": 45_000,
        "cifar100": 45_000,
        "svhn": 65_931,
    }
    caltech = spec("caltech101")
    assert (caltech.validation, caltech.test, caltech101.IMAGES - caltech.validation - caltech.test) == (915, 915, 6847)
    assert 7316 + 915 + 915 == 9146


@each
def test_images_for_validation_are_neither_in_the_pool_nor_for_testing(name: str, small: Any) -> None:
    dataset = small(name, validation=30)
    everything, kept = loaded(dataset.model_copy(update={"validation": 0})), loaded(dataset)
    assert len(set(rows(everything))) == len(rows(everything))
    assert sizes(kept) == (sizes(everything)[0] - 30, sizes(everything)[1])
    assert set(rows(kept)) < set(rows(everything))


@each
def test_a_smaller_pool_is_drawn_from_the_same_images(name: str, small: Any) -> None:
    dataset = small(name)
    whole, some, others = (
        loaded(dataset),
        loaded(dataset.model_copy(update={"pool": 7})),
        loaded(dataset.model_copy(update={"pool": 7}), seed=1),
    )
    assert sizes(some) == (7, sizes(whole)[1])
    assert set(rows(some)) < set(rows(whole))
    assert set(rows(some)) != set(rows(others))


@each
def test_images_keep_their_labels_whatever_is_drawn(name: str, small: Any) -> None:
    dataset = small(name)
    truth = dict(zip(rows(all_of := loaded(dataset.model_copy(update={"validation": 0}))), all_of.labels, strict=True))
    some = loaded(dataset.model_copy(update={"pool": 9}), seed=3)
    assert all(truth[image] == label for image, label in zip(rows(some), some.labels, strict=True))


@each
@pytest.mark.parametrize("parameter", ["validation", "pool"])
def test_more_images_than_there_are_are_refused(name: str, parameter: str, small: Any) -> None:
    with pytest.raises(UserError, match=rf"^params\.yaml: prepare\.dataset\.{parameter}: found 90000, but "):
        loaded(small(name, **{parameter: 90_000}))


@each
def test_without_files_and_without_leave_to_download_one_sentence_says_what_to_put_where(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(
        DataError,
        match=rf"^{tmp_path}/\S+: not found, and prepare\.dataset\.download is false; put https?://\S+ \(md5 [0-9a-f]{{32}}\) there$",
    ):
        loaded(spec(name, root=str(tmp_path), download=False))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files torchvision's tables have as their addresses."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CODLINE_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "served").mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path / "served"))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        for kind in (datasets.CIFAR10, datasets.CIFAR100):
            monkeypatch.setattr(kind, "url", address + kind.filename)
        monkeypatch.setattr(
            datasets.SVHN,
            "split_list",
            {split: [address + name, name, md5] for split, (_, name, md5) in datasets.SVHN.split_list.items()},
        )
        monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
        monkeypatch.setattr(caltech101, "URL", address + "caltech-101.zip")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield tmp_path / "served"
        server.shutdown()
        thread.join()


@each
def test_what_is_not_there_is_downloaded_once(name: str, served: Path, small: Any, tmp_path: Path) -> None:
    dataset = small(name)
    for file in [path for path in tmp_path.rglob("*") if path.suffix in {".gz", ".mat", ".zip"}]:
        file.rename(served / file.name)
    first = loaded(dataset.model_copy(update={"root": str(tmp_path / "raw"), "download": True}))
    assert len(rows(first)) >= 50
    assert not list((tmp_path / "raw").rglob("*.part"))
    shutil.rmtree(served)
    assert rows(loaded(dataset.model_copy(update={"root": str(tmp_path / "raw"), "download": True}))) == rows(first)


@each
def test_files_that_lie_there_unpacked_need_no_archive_and_are_not_touched(
    name: str, small: Any, tmp_path: Path
) -> None:
    dataset = small(name)
    first = loaded(dataset)
    for archive in [*tmp_path.rglob("*.gz"), *tmp_path.rglob("*.zip"), tmp_path / ".lock"]:
        archive.unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert rows(loaded(dataset)) == rows(first)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_batch_that_was_tampered_with_is_unpacked_again_and_never_unpickled(
    name: str, small: Any, tmp_path: Path
) -> None:
    dataset = small(name)
    first = rows(loaded(dataset))
    batch = next(tmp_path.glob("cifar*/test*"))
    batch.write_bytes(b"cos\nabort\n(tR.")  # to unpickle it would end this process
    assert rows(loaded(dataset)) == first
    batch.write_bytes(b"cos\nabort\n(tR.")
    next(tmp_path.glob("*.tar.gz")).unlink()
    with pytest.raises(DataError, match=r"not found, and prepare\.dataset\.download is false"):
        loaded(dataset)


def test_cifar_s_planes_are_channels_and_its_names_those_of_the_file(small: Any, tmp_path: Path) -> None:
    raw = loaded(small("cifar10", validation=0))
    rng = np.random.default_rng(0)
    first = official.batch(rng, 10, official.TRAIN, "labels")
    assert np.array_equal(raw.images[: len(first["data"])].reshape(-1, 3072), first["data"])
    assert raw.labels[:12].tolist() == [*range(10), 0, 1]
    assert raw.classes == tuple(f"class {number}" for number in range(10))
    assert sizes(raw) == (5 * 10 * official.TRAIN, 10 * official.TEST)


def test_svhn_s_label_ten_is_the_digit_nought(small: Any) -> None:
    raw = loaded(small("svhn", validation=0))
    assert raw.images.shape == (60, 3, 32, 32)
    assert raw.labels[:11].tolist() == [*range(10), 0]
    pixels = official.pixels(np.random.default_rng(0), 32, 32, 3, 10 * official.TRAIN)
    assert np.array_equal(raw.images[0], pixels[..., 0].transpose(2, 0, 1))


def test_fashion_mnist_is_grey_and_names_its_clothes(small: Any) -> None:
    raw = loaded(small("fashion_mnist"))
    assert raw.images.shape == (60, 1, 28, 28)
    assert raw.classes[9] == "Ankle boot"
    assert np.array_equal(raw.images[:40, 0], official.pixels(np.random.default_rng(0), 40, 28, 28))


def test_files_of_fashion_mnist_that_are_none_are_refused(small: Any, tmp_path: Path) -> None:
    loaded(dataset := small("fashion_mnist"))
    images = tmp_path / "FashionMNIST/raw/train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:1000])
    with pytest.raises(
        DataError, match=r"FashionMNIST/raw: not the official files \(.*\); delete it, and it is made anew"
    ):
        loaded(dataset)


def test_caltech_101_has_files_of_many_sizes_and_no_background(small: Any, caplog: pytest.LogCaptureFixture) -> None:
    raw = loaded(small("caltech101", validation=0))
    assert isinstance(raw.images, EncodedImages)
    assert raw.images.shape == (3, 224, 224)
    pictures = [Image.open(io.BytesIO(file)) for file in rows(raw)]
    assert len({picture.size for picture in pictures}) > 10
    assert {picture.mode for picture in pictures} == {"RGB", "L"}
    assert {picture.mode for picture, label in zip(pictures, raw.labels, strict=True) if label == 5} == {"L"}
    assert (len(raw.classes), raw.classes[0]) == (101, "kind_000")
    assert not caplog.messages


def test_a_share_of_caltech_101_is_taken_of_each_class_and_rounded_up(small: Any) -> None:
    raw = loaded(small("caltech101", test=0.1, validation=0))
    each_class = official.TRAIN + official.TEST
    assert np.bincount(raw.labels[raw.is_test]).tolist() == [1] * 101
    assert sizes(raw) == (101 * (each_class - 1), 101)


def test_a_number_of_test_images_of_caltech_101_is_drawn_from_all(small: Any) -> None:
    dataset = small("caltech101", test=50)
    assert sizes(loaded(dataset)) == (101 * (official.TRAIN + official.TEST) - 50 - 30, 50)
    with pytest.raises(UserError, match=r"prepare\.dataset\.test: found 606, but there are only 606 images"):
        loaded(dataset.model_copy(update={"test": 606}))


def test_a_tree_of_caltech_101_that_is_not_whole_is_warned_of(
    small: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(dataset := small("caltech101"))
    next(tmp_path.glob("caltech101/101_ObjectCategories/kind_007/*.jpg")).unlink()
    with caplog.at_level(logging.WARNING):
        loaded(dataset)
    assert caplog.messages == [
        f"{tmp_path}/caltech101/101_ObjectCategories: found 605 images, expected 606; delete it, and it is made anew"
    ]


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ("cifar100", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ("svhn", (0.4310, 0.4302, 0.4463), (0.1965, 0.1984, 0.1992)),
        ("caltech101", (0.502, 0.502, 0.502), (1.0, 1.0, 1.0)),
    ],
)
def test_the_released_code_s_statistics_are_there_to_be_chosen(
    name: str, mean: tuple[float, ...], std: tuple[float, ...], small: Any
) -> None:
    assert loaded(small(name, statistics="released")).statistics() == (list(mean), list(std))


def test_duplicates_are_test_images_that_the_pool_has_too() -> None:
    assert duplicates([b"a", b"b", b"b", b"c"], [b"b", b"d", b"b"]) == 2
    assert duplicates([b"a"], [b"b"]) == 0


def test_prepare_tells_of_test_images_that_are_in_the_pool(
    workspace: Workspace, small: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = small("svhn", validation=0)
    train, test = (Path(dataset.root) / "svhn" / f"{split}_32x32.mat" for split in ("train", "test"))
    shutil.copy(train, test)
    table = dict(datasets.SVHN.split_list)
    monkeypatch.setattr(datasets.SVHN, "split_list", table | {"test": [*table["test"][:2], downloads.checksum(test)]})
    workspace.change(**{"prepare.dataset": dataset.model_dump(), "prepare.start": 20})
    with caplog.at_level(logging.WARNING):
        workspace.run("prepare")
    assert caplog.messages == ["prepare.dataset: 40 of 40 test images are in the pool too, byte for byte"]


@pytest.fixture(scope="session")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official CIFAR-10 files, made again from Parquet files, which hold everything that was in them."""
    root = tmp_path_factory.mktemp("raw")
    folder = root / datasets.CIFAR10.base_folder
    folder.mkdir()
    names = json.loads(pq.read_schema(DATA / "cifar10/test.parquet").metadata[b"classes"])
    (folder / "batches.meta").write_bytes(
        official.pickled({"num_cases_per_batch": 10_000, "label_names": names, "num_vis": 3072})
    )
    for number in range(1, 6):
        rebuilt(f"train-batch{number}", f"training batch {number} of 5", folder / f"data_batch_{number}")
    rebuilt("test", "testing batch 1 of 1", folder / "test_batch")
    return root


def rebuilt(shard: str, label: str, path: Path) -> None:
    table = pq.read_table(DATA / f"cifar10/{shard}.parquet")
    content = {
        "batch_label": label,
        "labels": table["label"].to_pylist(),
        "data": decoded(table).reshape(-1, 3072),
        "filenames": table["filename"].to_pylist(),
    }
    path.write_bytes(official.pickled(content))


def decoded(table: Any) -> np.ndarray:
    return np.stack(
        [np.asarray(Image.open(io.BytesIO(cell.as_py())).convert("RGB")).transpose(2, 0, 1) for cell in table["image"]]
    )


@with_data
@pytest.mark.slow
def test_the_official_cifar_10_passes_torchvision_s_checksums_and_is_loaded_as_the_paper_splits_it(
    batches: Path,
) -> None:
    for name, md5 in [
        *datasets.CIFAR10.train_list,
        *datasets.CIFAR10.test_list,
        ("batches.meta", datasets.CIFAR10.meta["md5"]),
    ]:
        assert downloads.checksum(batches / datasets.CIFAR10.base_folder / name) == md5
    raw = loaded(spec("cifar10", root=str(batches), download=False))
    assert sizes(raw) == (45_000, 10_000)
    assert len(set(rows(raw))) == 55_000, "no image twice"
    assert raw.statistics()[0] == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-3)
    assert raw.statistics()[1] == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-3)
    test = pq.read_table(DATA / "cifar10/test.parquet")
    assert np.array_equal(raw.images[raw.is_test], decoded(test))
    assert raw.labels[raw.is_test].tolist() == test["label"].to_pylist()


@with_data
@pytest.mark.slow
def test_the_released_code_s_deviations_are_those_within_single_images(batches: Path) -> None:
    raw = loaded(spec("cifar10", root=str(batches), download=False, validation=0))
    first = pq.read_table(DATA / "cifar10/train-batch1.parquet")
    assert np.array_equal(raw.images[:10_000], decoded(first))
    assert sizes(raw) == (50_000, 10_000)
    within = np.mean([(image / 255).std((1, 2), ddof=1) for image in raw.images[:50_000]], axis=0)
    assert within == pytest.approx((0.2023, 0.1994, 0.2010), abs=5e-5)
