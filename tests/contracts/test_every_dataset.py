"""What every dataset promises: bytes, labels within the classes, a split that follows from the seed, and statistics that are right."""

import dataclasses
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.cli.plugins import members
from codline.core.errors import DataError
from codline.data.image_store import portions
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec
from codline.datasets.digits import Digits
from codline.datasets.folder import Folder
from codline.datasets.parquet import Parquet
from tests import official
from tests.families import spelled, variants

ALL = [*variants("datasets"), Parquet, Folder]
MEASURED = [
    spec for spec in ALL if getattr(spec, "statistics", "own") == "own"
]  # the others are somebody else's numbers
NAMES = {"ids": lambda spec: spec.__name__.lower() if isinstance(spec, type) else spelled(spec), "indirect": True}

each_dataset = pytest.mark.parametrize("spec", ALL, **NAMES)


@pytest.fixture
def spec(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetSpec:
    examples = {Parquet: in_parquet, Folder: in_folder}
    if isinstance(request.param, type):
        return examples[request.param](tmp_path)
    if request.param.name in official.WRITERS:
        return request.param.model_copy(update=official.written(request.param.name, tmp_path, monkeypatch))
    few = {"count": 50} if "count" in type(request.param).model_fields else {}  # of what is made here, a few do
    found: DatasetSpec = request.param.model_copy(update=few)
    return found


def in_folder(folder: Path) -> Folder:
    """Digits as PNG files in a folder per class."""
    raw = Digits().load(np.random.default_rng(0))
    for row, image in enumerate(raw.images[:300]):
        (folder / str(raw.labels[row])).mkdir(exist_ok=True)
        Image.fromarray(image[0]).save(folder / str(raw.labels[row]) / f"{row}.png")
    return Folder(path=str(folder))


def in_parquet(folder: Path) -> Parquet:
    """Digits as PNG files in two Parquet files."""
    raw = Digits().load(np.random.default_rng(0))
    for name, rows in {"train": ~raw.is_test, "test": raw.is_test}.items():
        cells = []
        for image in raw.images[rows]:
            file = io.BytesIO()
            Image.fromarray(image[0]).save(file, "png")
            cells.append(file.getvalue())
        pq.write_table(pa.table({"image": cells, "label": raw.labels[rows]}), folder / f"{name}.parquet")
    return Parquet(train=[str(folder / "train.parquet")], test=[str(folder / "test.parquet")], pool=1000)


def loaded(spec: DatasetSpec, seed: int = 0) -> RawDataset:
    """Decoded, where it gives files."""
    raw = spec.load(np.random.default_rng(seed))
    return (
        raw
        if isinstance(raw.images, np.ndarray)
        else dataclasses.replace(raw, images=np.concatenate([pixels for _, pixels in portions(raw.images)]))
    )


def numbers(raw: RawDataset) -> np.ndarray:
    """The labels; of segmentation, those of all pixels."""
    if isinstance(raw.labels, np.ndarray):
        assert raw.labels.dtype == np.int32
        return raw.labels
    found = np.stack([np.asarray(Image.open(io.BytesIO(mask))) for mask in raw.labels])
    assert found.dtype == np.uint8
    assert found.shape[1:] == raw.images.shape[2:]
    return found


@pytest.mark.parametrize("kind", members("datasets"))
def test_a_dataset_is_named_like_its_file(kind: type[DatasetSpec]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_dataset
def test_images_are_bytes_and_labels_lie_within_the_classes(spec: DatasetSpec) -> None:
    raw = loaded(spec)
    assert raw.images.dtype == np.uint8
    assert raw.images.ndim == 4
    assert raw.images.shape[1] == len(raw.statistics()[0]) == len(raw.statistics()[1])
    assert len(raw.images) == len(raw.labels) == len(raw.is_test)
    assert set(numbers(raw).flat) - {255} == set(range(len(raw.classes)))
    assert isinstance(raw.labels, np.ndarray) == (spec.task == "classification")
    assert raw.images.max() > 200, "bytes should use their range"


@each_dataset
def test_no_image_is_both_for_testing_and_in_the_pool(spec: DatasetSpec) -> None:
    raw = loaded(spec)
    assert raw.is_test.dtype == bool
    assert 0 < raw.is_test.sum() < len(raw.is_test)
    test, pool = ({image.tobytes() for image in raw.images[rows]} for rows in (raw.is_test, ~raw.is_test))
    assert not test & pool, "the same pixels on both sides"


@each_dataset
def test_the_split_follows_from_the_generator_alone(spec: DatasetSpec) -> None:
    one, again = loaded(spec), loaded(spec)
    for name in ("images", "labels", "is_test"):
        assert np.array_equal(getattr(one, name), getattr(again, name))


@pytest.mark.parametrize("spec", MEASURED, **NAMES)
def test_mean_and_standard_deviation_are_those_of_the_pixels(spec: DatasetSpec) -> None:
    raw = loaded(spec)
    mean, std = raw.statistics()
    pixels = raw.images[~raw.is_test] / 255
    assert pixels.mean((0, 2, 3)) == pytest.approx(mean, abs=2e-3)
    assert pixels.std((0, 2, 3)) == pytest.approx(std, abs=2e-3)


def test_parquet_files_of_many_sizes_are_cut_to_one(tmp_path: Path) -> None:
    rng, cells = np.random.default_rng(0), []
    for row in range(12):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (20 + row, 30), np.uint8)).save(file, "png")
        cells.append(file.getvalue())
    for name, rows in {"train": slice(8), "test": slice(8, 12)}.items():
        pq.write_table(
            pa.table({"image": cells[rows], "label": ["cat", "dog"] * (len(cells[rows]) // 2)}),
            tmp_path / f"{name}.parquet",
        )
    paths = {"train": [str(tmp_path / "train.parquet")], "test": [str(tmp_path / "test.parquet")], "pool": 5}
    with pytest.raises(
        DataError,
        match=r"row 1: found an image of \(1, 21, 30\), expected \(1, 20, 30\) as in the rows before it; set prepare.dataset.size$",
    ):
        Parquet(**paths).load(np.random.default_rng(0))
    spec = Parquet(**paths, size=[16, 24], channels=1)
    raw = spec.load(np.random.default_rng(0))
    assert isinstance(raw.images, EncodedImages)
    assert [raw.images.read(row) for row in range(5, 9)] == cells[8:]
    assert {raw.images.read(row) for row in range(5)} < set(cells[:8])
    assert raw.images.name(6) == f"{tmp_path / 'test.parquet'}: row 1"
    assert loaded(spec).images.shape == (9, 1, 16, 24)
    assert raw.labels.tolist()[5:] == [0, 1, 0, 1]
