"""The plan of the paper's items: valid campaigns at every scale, shared between items, with data from anywhere."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from codline.core.errors import UserError
from codline.core.files import write_json
from codline.orchestration import study_grid, study_plan
from codline.orchestration.paper_data import VARIABLE, parse_sources
from codline.orchestration.paper_plan import PaperScale, drawable_items
from codline.paper.items import find_item
from codline.paper.protocols import protocols
from stages.check_params import check
from tests.workspace import REPOSITORY

ALL = ("cifar10", "cifar100", "svhn", "fashion-mnist", "caltech101", "camvid", "cityscapes")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    Path("presets").symlink_to(REPOSITORY / "presets")
    return tmp_path


def parquet_folder(name: str) -> str:
    """`--data` of a folder that looks like one of Parquet files."""
    folder = Path("files", name)
    folder.mkdir(parents=True)
    for file in ("train-1.parquet", "train-2.parquet", "test.parquet"):
        (folder / file).touch()
    return f"{name}={folder}"


@pytest.mark.parametrize("scale", protocols().scales)
def test_every_campaign_has_valid_parameters(scale: str) -> None:
    at_scale = PaperScale(scale, parse_sources([parquet_folder(name) for name in ALL if name != "cityscapes"]))
    if scale == "paper":
        Path("files/cityscapes").mkdir()
        at_scale = PaperScale(scale, at_scale.sources | parse_sources(["cityscapes=files/cityscapes"]))
    studies = [at_scale.study(used, arms) for used, arms in at_scale.arms(drawable_items()).items()]
    for study in studies:
        points = study_grid.study_points(study.model_copy(update={"seeds": [0]}), "", {})
        for point in points:
            Path("point.yaml").write_text(point.params)
            check(Path("point.yaml"), derive=True)
        assert len({point.params for point in points}) == len(points), "two arms are the same campaign"
    assert len(studies) == {"smoke": 2, "small": 5, "paper": 5}[scale]


def test_study_is_written_as_a_file_that_codline_study_reads() -> None:
    at_scale = PaperScale("smoke", {})
    study = at_scale.study("digits", ["Random", "Ours-Semi", "Full Training"])
    assert study_grid.read_study(at_scale.write_study(study)) == study


def test_given_files_replace_the_download() -> None:
    pair = parquet_folder("cifar10")
    dataset = {
        "name": "parquet",
        "train": ["train-1.parquet", "train-2.parquet"],
        "test": ["test.parquet"],
        "pool": 4000,
    }
    study = PaperScale("small", parse_sources([pair])).study("cifar10", ["Random"])
    found = YAML(typ="safe").load(study_grid.study_points(study, "", {})[0].params)["prepare"]["dataset"]
    assert {
        key: [Path(p).name for p in value] if isinstance(value, list) else value for key, value in found.items()
    } == dataset
    assert all(Path(path).is_absolute() for path in found["train"])


def test_data_are_read_from_the_environment_and_replaced_by_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cifar10=download,svhn=download")
    Path("mine").mkdir()
    assert parse_sources(["cifar10=mine"]) == {"cifar10": str(Path("mine").resolve()), "svhn": "download"}


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("cifar10", "--data cifar10: expected NAME=FOLDER or NAME=download"),
        ("cifr10=download", "unknown dataset 'cifr10'; did you mean cifar10"),
        ("cifar10=nowhere", "nowhere is not a folder"),
    ],
)
def test_wrong_data_are_refused_with_one_sentence(pair: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_sources([pair])


def test_folder_with_training_files_alone_is_refused() -> None:
    Path("mine").mkdir()
    Path("mine/train.parquet").touch()
    with pytest.raises(UserError, match=r"expected files train\*.parquet and test\*.parquet"):
        PaperScale("small", parse_sources(["cifar10=mine"])).study("cifar10", ["Random"])


def test_item_without_any_data_is_refused_and_one_with_some_is_not() -> None:
    item = find_item("classification")
    with pytest.raises(UserError, match="paper classification: no data for CIFAR-10; give --data cifar10=FOLDER or"):
        PaperScale("small", {}).refuse_without_data(item)
    some = PaperScale("small", {"cifar10": "download"})
    some.refuse_without_data(item)
    assert [panel.used for panel in some.panels(item)] == ["cifar10", None, None, None]
    assert [sentence.partition(":")[0] for sentence in some.state([item]).missing] == [
        "CIFAR-100",
        "SVHN",
        "Caltech-101",
    ]


def test_cityscapes_is_replaced_by_camvid_or_streets_at_the_small_scale() -> None:
    assert PaperScale("small", {}).panel("cityscapes").used == "streets"
    assert PaperScale("small", {"camvid": "folder"}).panel("cityscapes").used == "camvid"


def test_campaign_that_one_item_has_run_is_done_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("head_commit", "code_version"):
        monkeypatch.setattr(study_plan.worktrees, name, lambda: "code")
    monkeypatch.setattr(study_plan.worktrees, "committed_text", lambda _: "")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    at_scale = PaperScale("smoke", {})
    assert at_scale.state([find_item("per-class")]).text == "not run"
    plan = study_plan.plan_points(at_scale.study("digits", ["Ours-Semi"]), {})
    for point in plan.points:
        record = {"digest": plan.digest(point), "arm": point.arm, "seed": point.seed, "curve": [], "seconds": 60.0}
        write_json(plan.record_file(point), record)
    assert [record["seed"] for record in at_scale.finished("digits", ["Random", "Ours-Semi"])] == [0, 1]
    assert at_scale.state([find_item("per-class")]).text == "done"
    sampling = at_scale.state([find_item("sampling")])
    assert (sampling.text, sampling.minutes) == ("2 of 10", pytest.approx(8.0))  # a minute each, as measured
