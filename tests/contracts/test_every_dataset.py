"""Contract of datasets: uint8 images, valid labels, a split that follows from the seed, correct channel statistics."""

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.cli.plugins import members
from codline.core.errors import DataError
from codline.data.image_store import decoded_chunks
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec
from codline.datasets.digits import Digits
from codline.datasets.folder import Folder
from codline.datasets.parquet import Parquet
from tests import official
from tests.families import variant_id, variants

SPECS = [*variants("datasets"), Parquet, Folder]
# The others have published statistics, of other images than those that the tests write.
SPECS_WITH_OWN_STATISTICS = [spec for spec in SPECS if getattr(spec, "statistics", "own") == "own"]


def spec_id(spec: DatasetSpec | type[DatasetSpec]) -> str:
    return spec.__name__.lower() if isinstance(spec, type) else variant_id(spec)


each_dataset = pytest.mark.parametrize("spec", SPECS, ids=spec_id, indirect=True)


@pytest.fixture
def spec(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetSpec:
    """The dataset with its files, if it needs any, and few images."""
    if isinstance(request.param, type):
        write_files = {Parquet: write_parquet_files, Folder: write_folder}
        return write_files[request.param](tmp_path)
    changes: dict[str, Any] = {}
    if request.param.name in official.WRITERS:
        changes = official.write_dataset_files(request.param.name, tmp_path, monkeypatch)
    elif "count" in type(request.param).model_fields:
        changes = {"count": 50}
    found: DatasetSpec = request.param.model_copy(update=changes)
    return found


def write_folder(folder: Path) -> Folder:
    """Digits as PNG files, a folder per class."""
    raw = Digits().load(np.random.default_rng(0))
    for row, image in enumerate(raw.images[:300]):
        (folder / str(raw.labels[row])).mkdir(exist_ok=True)
        (folder / str(raw.labels[row]) / f"{row}.png").write_bytes(encode_png(image[0]))
    return Folder(path=str(folder))


def write_parquet_files(folder: Path) -> Parquet:
    """Digits as PNG files in two Parquet files."""
    raw = Digits().load(np.random.default_rng(0))
    for name, rows in {"train": ~raw.is_test, "test": raw.is_test}.items():
        cells = [encode_png(image[0]) for image in raw.images[rows]]
        pq.write_table(pa.table({"image": cells, "label": raw.labels[rows]}), folder / f"{name}.parquet")
    return Parquet(train=[str(folder / "train.parquet")], test=[str(folder / "test.parquet")], pool=1000)


def encode_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def load_decoded(spec: DatasetSpec) -> RawDataset:
    raw = spec.load(np.random.default_rng(0))
    if isinstance(raw.images, np.ndarray):
        return raw
    return dataclasses.replace(raw, images=np.concatenate([pixels for _, pixels in decoded_chunks(raw.images)]))


def image_bytes(raw: RawDataset) -> list[bytes]:
    if isinstance(raw.images, EncodedImages):
        return [raw.images.read(row) for row in range(raw.images.count)]
    return [image.tobytes() for image in raw.images]


def class_numbers(raw: RawDataset) -> np.ndarray:
    """The labels; for segmentation, those of all pixels."""
    if isinstance(raw.labels, np.ndarray):
        assert raw.labels.dtype == np.int32
        return raw.labels
    masks = np.stack([np.asarray(Image.open(io.BytesIO(mask))) for mask in raw.labels])
    assert masks.dtype == np.uint8
    assert masks.shape[1:] == raw.images.shape[2:]
    return masks


@pytest.mark.parametrize("kind", members("datasets"))
def test_dataset_is_named_like_its_module(kind: type[DatasetSpec]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_dataset
def test_load_returns_uint8_images_and_valid_labels(spec: DatasetSpec) -> None:
    raw = load_decoded(spec)
    assert raw.images.dtype == np.uint8
    assert raw.images.ndim == 4
    assert raw.images.shape[1] == len(raw.channel_statistics()[0]) == len(raw.channel_statistics()[1])
    assert len(raw.images) == len(raw.labels) == len(raw.is_test)
    assert set(class_numbers(raw).flat) - {255} == set(range(len(raw.classes)))
    assert isinstance(raw.labels, np.ndarray) == (spec.task == "classification")
    assert raw.images.max() > 200, "pixels should use the range of uint8"


@each_dataset
def test_load_returns_ascending_ids_and_the_names_of_the_users_own_images(spec: DatasetSpec) -> None:
    raw = spec.load(np.random.default_rng(0))
    assert raw.ids.dtype == np.int64
    assert (np.diff(raw.ids) > 0).all()
    if not spec.input_paths():
        assert raw.ids.tolist() == list(range(len(raw.is_test)))
        assert raw.files is None
        return
    assert raw.files is not None
    assert sorted(set(raw.files["id"].to_pylist())) == raw.ids.tolist()
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in spec.input_paths())


@each_dataset
def test_load_puts_no_image_into_both_pool_and_test_set(spec: DatasetSpec) -> None:
    raw = spec.load(np.random.default_rng(0))
    assert raw.is_test.dtype == bool
    assert 0 < raw.is_test.sum() < len(raw.is_test)
    images = np.array(image_bytes(raw), object)
    assert not set(images[raw.is_test]) & set(images[~raw.is_test])


@each_dataset
def test_load_follows_from_the_generator_alone(spec: DatasetSpec) -> None:
    first, second = (spec.load(np.random.default_rng(0)) for _ in range(2))
    assert np.array_equal(first.labels, second.labels)
    assert np.array_equal(first.is_test, second.is_test)
    assert image_bytes(first) == image_bytes(second)


@pytest.mark.parametrize("spec", SPECS_WITH_OWN_STATISTICS, ids=spec_id, indirect=True)
def test_channel_statistics_are_those_of_the_pixels(spec: DatasetSpec) -> None:
    raw = load_decoded(spec)
    mean, std = raw.channel_statistics()
    pixels = raw.images[~raw.is_test] / 255
    assert pixels.mean((0, 2, 3)) == pytest.approx(mean, abs=2e-3)
    assert pixels.std((0, 2, 3)) == pytest.approx(std, abs=2e-3)


def test_parquet_crops_images_of_several_sizes_to_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cells = [encode_png(rng.integers(0, 256, (20 + row, 30), np.uint8)) for row in range(12)]
    for name, rows in {"train": slice(8), "test": slice(8, 12)}.items():
        labels = ["cat", "dog"] * (len(cells[rows]) // 2)
        pq.write_table(pa.table({"image": cells[rows], "label": labels}), tmp_path / f"{name}.parquet")
    paths = {"train": [str(tmp_path / "train.parquet")], "test": [str(tmp_path / "test.parquet")], "pool": 5}
    expected = r"expected \(1, 20, 30\) as in the rows before it; set prepare.dataset.size$"
    with pytest.raises(DataError, match=rf"row 1: found an image of \(1, 21, 30\), {expected}"):
        Parquet(**paths).load(np.random.default_rng(0))
    spec = Parquet(**paths, size=[16, 24], channels=1)
    raw = spec.load(np.random.default_rng(0))
    assert isinstance(raw.images, EncodedImages)
    read = [raw.images.read(row) for row in range(9)]
    assert set(read) >= set(cells[8:])
    assert {read[row] for row in np.flatnonzero(raw.is_test)} == set(cells[8:])
    assert raw.images.name(read.index(cells[9])) == f"{tmp_path / 'test.parquet'}: row 1"
    assert load_decoded(spec).images.shape == (9, 1, 16, 24)
    assert [raw.labels[read.index(cell)] for cell in cells[8:]] == [0, 1, 0, 1]
