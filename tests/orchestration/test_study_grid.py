"""The grid of a study: arms times seeds with complete parameters, or one sentence about what is wrong."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from codline.core.errors import UserError
from codline.orchestration import study_grid
from codline.orchestration.study_grid import Study, StudyPoint
from stages.check_params import check
from tests.tiny_study import TINY
from tests.workspace import REPOSITORY

PARAMS = (REPOSITORY / "params.yaml").read_text()
STUDIES = sorted((REPOSITORY / "studies").glob("*.yaml"))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    return tmp_path


def write_study(text: str, name: str = "tiny") -> Study:
    Path("studies", f"{name}.yaml").write_text(text)
    return study_grid.read_study(study_grid.find_study(name))


def points_of(text: str, **overrides: object) -> list[StudyPoint]:
    """`__` in the name of an override becomes a dot."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return study_grid.study_points(write_study(text), PARAMS, dotted)


def params_of(point: StudyPoint) -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe").load(point.params)
    return document


def test_study_points_are_arms_times_seeds_with_complete_params() -> None:
    points = points_of(TINY)
    assert [point.name for point in points] == ["random-s0", "entropy-s0", "random-s1", "entropy-s1"]
    raw = params_of(points[3])
    assert raw["seed"] == 1
    assert (raw["score"]["strategy"], raw["train"]["objectives"]) == ({"name": "entropy"}, [])
    assert (raw["train"]["epochs"], list(raw["cycles"]), list(raw["queries"])) == (1, ["c1", "c2"], ["c1"])
    assert raw["train"]["batch_size"] == 32


def test_arm_overrides_combine_axes_and_name_arms_after_the_values() -> None:
    objectives = "[[], [{name: ema, weight: 0.1}, {name: ll4al}]]"
    axes = f"{{score.strategy.name: [random, cod], train.objectives: {objectives}, train.epochs: [1]}}"
    assert list(write_study(f"{{name: x, title: x, seeds: [0], axes: {axes}}}").arm_overrides) == [
        "random, no objectives, epochs 1",
        "random, ema weight 0.1 + ll4al, epochs 1",
        "cod, no objectives, epochs 1",
        "cod, ema weight 0.1 + ll4al, epochs 1",
    ]


def test_study_points_drop_the_parameters_of_a_replaced_plug_in() -> None:
    axes = "axes: {score.strategy.name: [random, cod]}"
    points = points_of(f"{{name: x, title: x, seeds: [0], base: {{score.strategy.outputs: logits}}, {axes}}}")
    strategies = [params_of(point)["score"]["strategy"] for point in points]
    assert strategies[0] == {"name": "random"}
    assert strategies[1]["outputs"] == "logits"


def test_study_points_change_one_objective_by_its_name() -> None:
    base = "base: {train.objectives: [{name: ema}, {name: ll4al}], train.objectives.ema.decay: 0.5}"
    points = points_of(f"{{name: x, title: x, seeds: [0], {base}, axes: {{train.objectives.ema.weight: [0.1, 0.2]}}}}")
    assert [params_of(point)["train"]["objectives"] for point in points] == [
        [{"name": "ema", "decay": 0.5, "weight": weight}, {"name": "ll4al"}] for weight in (0.1, 0.2)
    ]
    with pytest.raises(
        UserError, match=r"^train\.objectives\.cyclic\.weight: params\.yaml has no 'cyclic'; expected ema$"
    ):
        points_of("{name: x, title: x, seeds: [0], arms: {a: {train.objectives.cyclic.weight: 1.0}}}")


@pytest.mark.parametrize("key", ["seed", "score__strategy__name", "score__strategy", "score"])
def test_study_points_refuse_overrides_of_what_the_study_varies(key: str) -> None:
    with pytest.raises(UserError, match="the study varies"):
        points_of(TINY, **{key: 3})


def test_study_like_another_inherits_base_cycles_and_seeds() -> None:
    write_study(TINY)
    other = write_study("{name: other, title: o, like: tiny, base: {train.epochs: 7}, arms: {a: {}}}", "other")
    assert other.base == {"train.epochs": 7, "train.objectives": []}
    assert (other.cycles, other.seeds, list(other.arm_overrides)) == (2, [0, 1], ["a"])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_included_studies_have_distinct_points_that_the_stages_accept(
    path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    study = study_grid.read_study(path)
    assert study.name == path.stem
    files = {"prepare.dataset.train": ["a.parquet"], "prepare.dataset.test": ["b.parquet"]}
    points = study_grid.study_points(study, PARAMS, files if "parquet" in str(study.base) else {})
    assert len(points) == len(study.arm_overrides) * len(study.seeds)
    assert len({point.name for point in points}) == len({point.params for point in points}) == len(points)
    for point in {point.arm: point for point in points}.values():
        (directory / "params.yaml").write_text(point.params)
        check(directory / "params.yaml")


def test_study_starts_from_a_preset_instead_of_the_committed_params() -> None:
    Path("presets").symlink_to(REPOSITORY / "presets")
    text = "{name: x, title: x, preset: cifar10-paper, cycles: 2, seeds: [3], arms: {a: {train.epochs: 1}}}"
    (point,) = points_of(text)
    raw = params_of(point)
    assert (raw["prepare"]["dataset"]["name"], raw["prepare"]["model"]["name"]) == ("cifar10", "resnet18")
    assert (raw["train"]["epochs"], raw["train"]["batch_size"], raw["seed"]) == (1, 128, 3)
    assert [*raw["cycles"]] == ["c1", "c2"]
    Path("studies/x.yaml").write_text(text)
    (inheriting,) = points_of("{name: y, title: y, like: x, arms: {b: {train.epochs: 1}}}")
    assert params_of(inheriting) == raw


def test_study_with_an_unknown_preset_is_refused_with_a_suggestion() -> None:
    Path("presets").symlink_to(REPOSITORY / "presets")
    with pytest.raises(UserError, match=r"study x: preset: unknown preset 'cifar10-papr'; did you mean cifar10-paper"):
        points_of("{name: x, title: x, preset: cifar10-papr, seeds: [3], arms: {a: {}}}")
