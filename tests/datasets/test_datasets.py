"""Public datasets: small files in the official formats, read by torchvision; with CODLINE_TEST_DATA, real ones too."""

import io
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import TypeAdapter
from torchvision import datasets, transforms

from codline.core.errors import DataError, UserError
from codline.data import downloads
from codline.data.image_store import open_image_store, write_images
from codline.data.ingest import count_duplicates
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.data.splits import split_dataset
from codline.datasets import AnyDataset, caltech101
from codline.orchestration import presets
from tests import official
from tests.workspace import REPOSITORY, Workspace

DATA = Path(os.environ.get("CODLINE_TEST_DATA", "nowhere"))
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="CODLINE_TEST_DATA names no folder")
PRESETS = REPOSITORY / "presets"
each_dataset = pytest.mark.parametrize("name", official.WRITERS)


@pytest.fixture
def small_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """small_dataset("svhn", pool=3) is SVHN with a few images on disk."""

    def create(name: str, **parameters: Any) -> Any:
        return make_spec(name, **official.write_dataset_files(name, tmp_path, monkeypatch) | parameters)

    return create


def make_spec(name: str, **parameters: Any) -> Any:
    return TypeAdapter(AnyDataset).validate_python({"name": name} | parameters)


def load(dataset: Any, seed: int = 0, **changes: Any) -> RawDataset:
    raw: RawDataset = dataset.model_copy(update=changes).load(np.random.default_rng(seed))
    return raw


def image_bytes(raw: RawDataset) -> list[bytes]:
    if isinstance(raw.images, EncodedImages):
        return [raw.images.read(row) for row in range(raw.images.count)]
    return [image.tobytes() for image in raw.images]


def split_sizes(raw: RawDataset) -> tuple[int, int]:
    return int((~raw.is_test).sum()), int(raw.is_test.sum())


def test_validation_sizes_match_the_papers_table_of_datasets() -> None:
    """The paper's `train` is the training images without those for validation; for Caltech-101 see its docstring."""
    training_images = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257}
    held_out = {name: presets.resolve(f"{name}-paper", PRESETS)["prepare"]["validation"] for name in training_images}
    pools = {name: count - held_out[name] for name, count in training_images.items()}
    assert pools == {"cifar10": 45_000, "cifar100": 45_000, "svhn": 65_931}
    caltech = presets.resolve("caltech101-paper", PRESETS)["prepare"]
    assert (caltech["validation"], caltech["dataset"]["test"]) == (915, make_spec("caltech101").test) == (915, 915)
    assert (caltech101.IMAGES - 915 - 915, 7316 + 915 + 915) == (6847, 9146)


@each_dataset
def test_load_draws_a_smaller_pool_from_the_same_images(name: str, small_dataset: Any) -> None:
    dataset = small_dataset(name)
    everything, few, others = load(dataset), load(dataset, pool=7), load(dataset, seed=1, pool=7)
    assert split_sizes(few) == (7, split_sizes(everything)[1])
    assert set(image_bytes(few)) < set(image_bytes(everything))
    assert set(image_bytes(few)) != set(image_bytes(others))


@each_dataset
def test_load_keeps_the_labels_of_images_in_a_smaller_pool(name: str, small_dataset: Any) -> None:
    dataset = small_dataset(name)
    everything, few = load(dataset), load(dataset, seed=3, pool=9)
    label_of = dict(zip(image_bytes(everything), everything.labels, strict=True))
    assert [label_of[image] for image in image_bytes(few)] == few.labels.tolist()


@each_dataset
def test_load_refuses_a_larger_pool_than_there_are_images(name: str, small_dataset: Any) -> None:
    with pytest.raises(UserError, match=r"^params\.yaml: prepare\.dataset\.pool: found 90000, but there are only "):
        load(small_dataset(name, pool=90_000))


@each_dataset
def test_load_without_files_or_download_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    where_to_put_it = r"put https?://\S+ \(md5 [0-9a-f]{32}\) there"
    sentence = rf"not found, and prepare\.dataset\.download is false; {where_to_put_it}"
    with pytest.raises(DataError, match=rf"^{tmp_path}/\S+: {sentence}$"):
        load(make_spec(name, root=str(tmp_path), download=False))


@pytest.fixture
def served_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served over HTTP, from which torchvision's datasets are downloaded."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path / "scratch"))
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


@each_dataset
def test_load_downloads_missing_files_once(name: str, served_folder: Path, small_dataset: Any, tmp_path: Path) -> None:
    dataset = small_dataset(name)
    for file in [path for path in tmp_path.rglob("*") if path.suffix in {".gz", ".mat", ".zip"}]:
        file.rename(served_folder / file.name)
    dataset = dataset.model_copy(update={"root": str(tmp_path / "raw"), "download": True})
    first = load(dataset)
    assert len(image_bytes(first)) >= 50
    assert not list((tmp_path / "raw").rglob("*.part"))
    shutil.rmtree(served_folder)
    assert image_bytes(load(dataset)) == image_bytes(first)


@each_dataset
def test_load_of_unpacked_files_needs_no_archive_and_modifies_nothing(
    name: str, small_dataset: Any, tmp_path: Path
) -> None:
    dataset = small_dataset(name)
    first = load(dataset)
    for archive in [*tmp_path.rglob("*.gz"), *tmp_path.rglob("*.zip"), tmp_path / ".lock"]:
        archive.unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert image_bytes(load(dataset)) == image_bytes(first)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_never_unpickles_a_modified_batch_but_unpacks_it_again(
    name: str, small_dataset: Any, tmp_path: Path
) -> None:
    dataset = small_dataset(name)
    first = image_bytes(load(dataset))
    batch = next(tmp_path.glob("cifar*/test*"))
    batch.write_bytes(b"cos\nabort\n(tR.")  # unpickling it would end this process
    assert image_bytes(load(dataset)) == first
    batch.write_bytes(b"cos\nabort\n(tR.")
    next(tmp_path.glob("*.tar.gz")).unlink()
    with pytest.raises(DataError, match=r"not found, and prepare\.dataset\.download is false"):
        load(dataset)


def test_cifar_reads_planes_as_channels_and_class_names_from_the_file(small_dataset: Any, tmp_path: Path) -> None:
    raw = load(small_dataset("cifar10"))
    rng = np.random.default_rng(0)
    first = official.cifar_batch(rng, 10, official.TRAIN_PER_CLASS, "labels")
    assert np.array_equal(raw.images[: len(first["data"])].reshape(-1, 3072), first["data"])
    assert raw.labels[:12].tolist() == [*range(10), 0, 1]
    assert raw.classes == tuple(f"class {number}" for number in range(10))
    assert split_sizes(raw) == (5 * 10 * official.TRAIN_PER_CLASS, 10 * official.TEST_PER_CLASS)


def test_svhn_reads_label_ten_as_the_digit_zero(small_dataset: Any) -> None:
    raw = load(small_dataset("svhn"))
    assert raw.images.shape == (60, 3, 32, 32)
    assert raw.labels[:11].tolist() == [*range(10), 0]
    pixels = official.random_pixels(np.random.default_rng(0), 32, 32, 3, 10 * official.TRAIN_PER_CLASS)
    assert np.array_equal(raw.images[0], pixels[..., 0].transpose(2, 0, 1))


def test_fashion_mnist_is_gray_and_has_class_names(small_dataset: Any) -> None:
    raw = load(small_dataset("fashion_mnist"))
    assert raw.images.shape == (60, 1, 28, 28)
    assert raw.classes[9] == "Ankle boot"
    assert np.array_equal(raw.images[:40, 0], official.random_pixels(np.random.default_rng(0), 40, 28, 28))


def test_fashion_mnist_refuses_truncated_files(small_dataset: Any, tmp_path: Path) -> None:
    load(dataset := small_dataset("fashion_mnist"))
    images = tmp_path / "FashionMNIST/raw/train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:1000])
    with pytest.raises(
        DataError, match=r"FashionMNIST/raw: not the official files \(.*\); delete it, and it is made anew"
    ):
        load(dataset)


def test_caltech_101_has_files_of_many_sizes_and_no_background(
    small_dataset: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw = load(small_dataset("caltech101"))
    assert isinstance(raw.images, EncodedImages)
    assert raw.images.shape == (3, 224, 224)
    pictures = [Image.open(io.BytesIO(file)) for file in image_bytes(raw)]
    assert len({picture.size for picture in pictures}) > 10
    assert {picture.mode for picture in pictures} == {"RGB", "L"}
    assert {picture.mode for picture, label in zip(pictures, raw.labels, strict=True) if label == 5} == {"L"}
    assert (len(raw.classes), raw.classes[0]) == (101, "kind_000")
    assert not caplog.messages


def test_caltech_101_images_have_the_pixels_of_the_authors_transforms(small_dataset: Any, tmp_path: Path) -> None:
    raw = load(small_dataset("caltech101"))
    assert isinstance(raw.images, EncodedImages)
    rows = [0, 1, int(np.flatnonzero(raw.labels == 5)[0])]  # the last one is gray
    files = [raw.images.read(row) for row in rows]
    write_images(tmp_path / "images", np.arange(3), replace(raw.images, count=3, read=files.__getitem__))
    theirs = transforms.Compose([transforms.Resize((256, 256)), transforms.CenterCrop(224)])
    expected = [np.asarray(theirs(Image.open(io.BytesIO(file)).convert("RGB"))).transpose(2, 0, 1) for file in files]
    taken = open_image_store(tmp_path / "images").take(np.arange(3))
    assert [np.array_equal(*pair) for pair in zip(taken, expected, strict=True)] == [True] * 3


def test_caltech_101_takes_a_test_share_of_each_class_rounded_up(small_dataset: Any) -> None:
    raw = load(small_dataset("caltech101", test=0.1))
    each_class = official.TRAIN_PER_CLASS + official.TEST_PER_CLASS
    assert np.bincount(raw.labels[raw.is_test]).tolist() == [1] * 101
    assert split_sizes(raw) == (101 * (each_class - 1), 101)


def test_caltech_101_draws_a_number_of_test_images_from_all_classes(small_dataset: Any) -> None:
    dataset = small_dataset("caltech101", test=50)
    assert split_sizes(load(dataset)) == (101 * (official.TRAIN_PER_CLASS + official.TEST_PER_CLASS) - 50, 50)
    with pytest.raises(UserError, match=r"prepare\.dataset\.test: found 606, but there are only 606 images"):
        load(dataset, test=606)


def test_caltech_101_warns_of_missing_images(
    small_dataset: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(dataset := small_dataset("caltech101"))
    next(tmp_path.glob("caltech101/101_ObjectCategories/kind_007/*.jpg")).unlink()
    with caplog.at_level(logging.WARNING):
        load(dataset)
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
def test_statistics_can_be_those_of_the_released_code(
    name: str, mean: tuple[float, ...], std: tuple[float, ...], small_dataset: Any
) -> None:
    assert load(small_dataset(name, statistics="released")).channel_statistics() == (list(mean), list(std))


def test_count_duplicates_counts_test_images_that_are_in_the_pool() -> None:
    assert count_duplicates([b"a", b"b", b"b", b"c"], [b"b", b"d", b"b"]) == 2
    assert count_duplicates([b"a"], [b"b"]) == 0


def test_prepare_warns_of_test_images_that_are_in_the_pool(
    workspace: Workspace, small_dataset: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = small_dataset("svhn")
    train, test = (Path(dataset.root) / "svhn" / f"{split}_32x32.mat" for split in ("train", "test"))
    shutil.copy(train, test)
    split_list = dict(datasets.SVHN.split_list)
    split_list["test"] = [*split_list["test"][:2], downloads.md5_checksum(test)]
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    workspace.change(**{"prepare.dataset": dataset.model_dump(), "prepare.start": 20, "prepare.validation": 0})
    with caplog.at_level(logging.WARNING):
        workspace.run("prepare")
    assert caplog.messages == ["prepare.dataset: 40 of 40 test images are in the pool too, byte for byte"]


@pytest.fixture(scope="session")
def cifar10_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official CIFAR-10 files, restored from Parquet files with the same content."""
    root = tmp_path_factory.mktemp("raw")
    folder = root / datasets.CIFAR10.base_folder
    folder.mkdir()
    names = json.loads(pq.read_schema(DATA / "cifar10/test.parquet").metadata[b"classes"])
    (folder / "batches.meta").write_bytes(
        official.python2_pickle({"num_cases_per_batch": 10_000, "label_names": names, "num_vis": 3072})
    )
    for number in range(1, 6):
        write_batch(f"train-batch{number}", f"training batch {number} of 5", folder / f"data_batch_{number}")
    write_batch("test", "testing batch 1 of 1", folder / "test_batch")
    return root


def write_batch(shard: str, label: str, path: Path) -> None:
    table = pq.read_table(DATA / f"cifar10/{shard}.parquet")
    content = {
        "batch_label": label,
        "labels": table["label"].to_pylist(),
        "data": decode_images(table).reshape(-1, 3072),
        "filenames": table["filename"].to_pylist(),
    }
    path.write_bytes(official.python2_pickle(content))


def decode_images(table: Any) -> np.ndarray:
    images = (Image.open(io.BytesIO(cell.as_py())).convert("RGB") for cell in table["image"])
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in images])


@with_data
@pytest.mark.slow
def test_cifar_10_official_files_are_loaded_with_the_papers_split(cifar10_root: Path) -> None:
    meta = ("batches.meta", datasets.CIFAR10.meta["md5"])
    for name, md5 in [*datasets.CIFAR10.train_list, *datasets.CIFAR10.test_list, meta]:
        assert downloads.md5_checksum(cifar10_root / datasets.CIFAR10.base_folder / name) == md5
    raw = load(make_spec("cifar10", root=str(cifar10_root), download=False))
    assert split_sizes(raw) == (50_000, 10_000)
    assert len(set(image_bytes(raw))) == 60_000, "no image twice"
    split = split_dataset(raw, start=0.1, validation=5000, seed=0)
    assert [np.bincount(raw.labels[rows]).tolist() for rows in (split.pool, split.validation)] == [
        [4500] * 10,
        [500] * 10,
    ]
    assert raw.channel_statistics()[0] == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-3)
    assert raw.channel_statistics()[1] == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-3)
    test = pq.read_table(DATA / "cifar10/test.parquet")
    assert np.array_equal(raw.images[raw.is_test], decode_images(test))
    assert raw.labels[raw.is_test].tolist() == test["label"].to_pylist()


@with_data
@pytest.mark.slow
def test_cifar_10_released_deviations_are_those_within_single_images(cifar10_root: Path) -> None:
    raw = load(make_spec("cifar10", root=str(cifar10_root), download=False))
    first = pq.read_table(DATA / "cifar10/train-batch1.parquet")
    assert np.array_equal(raw.images[:10_000], decode_images(first))
    assert split_sizes(raw) == (50_000, 10_000)
    within = np.mean([(image / 255).std((1, 2), ddof=1) for image in raw.images[:50_000]], axis=0)
    assert within == pytest.approx((0.2023, 0.1994, 0.2010), abs=5e-5)
