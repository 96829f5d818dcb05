"""Presets: complete, composed without repetition, refused with one sentence, and shown on a page that is up to date."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from codline.cli.plugins import members
from codline.core import params
from codline.core.errors import UserError
from codline.core.params import tag
from codline.datasets import AnyDataset
from codline.orchestration import presets
from stages.__main__ import check
from tests.families import CHOSEN_BY
from tests.workspace import REPOSITORY

FOLDER = REPOSITORY / "presets"
NAMES = presets.names(FOLDER)
LAYERS = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.yaml"))
COMMITTED = params.load(REPOSITORY / "params.yaml")
DATASETS = ("cifar10", "cifar100", "svhn", "caltech101")


def missing(document: dict[str, Any]) -> list[str]:
    """The plug-ins that a preset names and codline does not have."""
    found = []
    for family, key in CHOSEN_BY.items():
        section, part = key.split(".")
        name = document[section][part]["name"]
        if name not in [tag(member) for member in members(family)]:
            found.append(f"{part} {name}")
    return found


def written(folder: Path, **layers: dict[str, Any]) -> Path:
    for name, layer in layers.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            YAML(typ="safe", pure=True).dump({"about": name} | layer, file)
    return folder


def values(name: str) -> dict[str, Any]:
    return presets.leaves(presets.resolved(name, FOLDER))


def test_the_presets_that_were_promised_are_there() -> None:
    both = {f"{dataset}-{kind}" for dataset in DATASETS for kind in ("paper", "released")}
    full = {f"{dataset}-full" for dataset in (*DATASETS, "digits", "fashion-mnist", "cityscapes", "camvid")}
    assert set(NAMES) >= both | full | {
        "cityscapes-paper",
        "cifar10-codline",
        "digits",
        "fashion-mnist",
        "cifar10-small",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_every_section_of_params_yaml_and_every_key_that_is_not_a_plug_in_s_own(name: str) -> None:
    document = presets.resolved(name, FOLDER)
    assert set(document) == set(COMMITTED)
    assert len(params.cycles(document)) == (1 if name.endswith("-full") else 7)
    for section in set(COMMITTED) - {"seed", "cycles", "queries"}:
        assert set(document[section]) >= set(COMMITTED[section])


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_whose_parts_are_there_is_accepted_by_every_stage(name: str, tmp_path: Path) -> None:
    document = presets.resolved(name, FOLDER)
    if absent := missing(document):
        pytest.skip(f"codline has no {', no '.join(absent)}")
    with (tmp_path / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(document, file)
    check(tmp_path / "params.yaml")


def test_digits_is_the_committed_params_yaml() -> None:
    assert presets.resolved("digits", FOLDER) == COMMITTED, (
        "change the layer that says otherwise, then: codline preset digits"
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_says_what_is_said_beneath_it(name: str) -> None:
    beneath: dict[str, Any] = {}
    for layer in presets.lineage(name, FOLDER).values():
        before, own = presets.leaves(beneath), presets.leaves(layer.params) if layer.params else {}
        assert [key for key, value in own.items() if key in before and before[key] == value] == []
        beneath = presets.laid(layer.params, beneath)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_source(name: str) -> None:
    layers = presets.lineage(name, FOLDER)
    origins = presets.origins(layers)
    assert [key for key in presets.leaves(presets.composed(layers)) if not origins.get(key)] == []


def test_every_layer_is_used_and_vouches_only_for_what_its_presets_have() -> None:
    used: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for name in NAMES:
        keys = presets.leaves(presets.composed(presets.lineage(name, FOLDER)))
        for layer in presets.lineage(name, FOLDER):
            used[layer] |= set(keys)
    assert [layer for layer, keys in used.items() if not keys] == []
    for layer, keys in used.items():
        named = presets.read(presets.file(layer, FOLDER)).sources
        assert [source for source in named if not any(f"{key}.".startswith(f"{source}.") for key in keys)] == []


def test_the_paper_s_table_of_implementation_details_is_met() -> None:
    table = {
        "cifar10": (0.1, 200, 128),
        "cifar100": (0.1, 200, 128),
        "svhn": (0.1, 200, 128),
        "caltech101": (0.01, 50, 64),
        "cityscapes": (5e-4, 40, 4),
    }
    for dataset, row in table.items():
        found = values(f"{dataset}-paper")
        assert tuple(found[f"train.{key}"] for key in ("learning_rate", "epochs", "batch_size")) == row
        assert (found["prepare.start"], found["select.budget"]) == (0.10, 0.05)
        assert (found["train.objective.weight"], found["train.objective.decay"]) == (0.05, 0.999)
        assert found["score.strategy.first_cycle"] == "largest"


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-full")])
def test_full_training_has_everything_labeled_asks_nothing_and_trains_as_the_others_do(name: str) -> None:
    found, dataset = values(name), name.removesuffix("-full")
    other = values(f"{dataset}-paper" if f"{dataset}-paper" in NAMES else dataset)
    assert (found["prepare.start"], found["queries"], found["train.objective.name"]) == ("all", {}, "none")
    recipe = [
        key
        for key in other
        if key.startswith(("prepare.dataset", "prepare.model", "train.", "evaluate.")) and "objective" not in key
    ]
    assert {key: found[key] for key in recipe} == {key: other[key] for key in recipe}


def test_the_released_weights_and_subsets_are_met() -> None:
    released = {name: values(f"{name}-released") for name in DATASETS}
    assert [found["train.objective.weight"] for found in released.values()] == [0.02, 0.05, 0.005, 0.1]
    assert [found["score.subset"] for found in released.values()] == [25000, 25000, 29302, 4340]
    assert {found["score.strategy.first_cycle"] for found in released.values()} == {"independent"}


def test_images_are_kept_for_validation_as_in_the_paper_and_in_the_released_code_none_are() -> None:
    kept = {
        name: [values(f"{name}-{kind}")["prepare.dataset.validation"] for kind in ("paper", "released")]
        for name in DATASETS
    }
    assert kept == {"cifar10": [5000, 0], "cifar100": [5000, 0], "svhn": [7326, 0], "caltech101": [915, 0]}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(DATASETS)])
def test_a_dataset_takes_the_parameters_that_its_presets_give_it(name: str) -> None:
    TypeAdapter(AnyDataset).validate_python(presets.resolved(name, FOLDER)["prepare"]["dataset"])


def test_an_unknown_preset_is_refused_with_the_near_ones() -> None:
    with pytest.raises(UserError, match=r"^preset: unknown preset 'cifar10-papr'; did you mean cifar10-paper or "):
        presets.resolved("cifar10-papr", FOLDER)


@pytest.mark.parametrize("name", ["methods/paper", "../params", ""])
def test_a_layer_is_no_preset(name: str) -> None:
    with pytest.raises(UserError, match="unknown preset"):
        presets.resolved(name, FOLDER)


def test_a_directory_without_presets_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"presets: not found; run this from the root of a codline project"):
        presets.names(tmp_path / "presets")


def test_a_circle_of_layers_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, top={"extends": ["a"]}, a={"extends": ["b"]}, b={"extends": ["a"]})
    with pytest.raises(UserError, match=r"b\.yaml: extends: a -> b -> a goes round in a circle"):
        presets.resolved("top", folder)


def test_a_layer_that_is_not_there_is_named_with_the_near_ones(tmp_path: Path) -> None:
    folder = written(tmp_path, top={"extends": ["methods/papr"]}, methods__paper={})
    with pytest.raises(
        UserError, match=r"top\.yaml: extends: unknown layer 'methods/papr'; did you mean methods/paper"
    ):
        presets.resolved("top", folder)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"extend": ["a"]}, "extend: unknown key; did you mean extends?"),
        ({"extends": "a"}, "extends: found 'a', expected a list"),
        ({"params": 3}, "params: found 3, expected keys beneath it"),
        ({"about": None}, "about: found nothing, expected a text"),
    ],
)
def test_a_layer_that_is_none_is_refused(tmp_path: Path, layer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        presets.resolved("top", written(tmp_path, top=layer))
    assert str(refused.value) == f"{tmp_path / 'top.yaml'}: {sentence}"


@pytest.mark.parametrize(
    "own",
    [{}, {"cycles": {"c1": {"prev": "init"}}}, {"cycles": "many"}, {"cycles": True}, {"cycles": 2, "queries": {}}],
)
def test_a_preset_says_how_many_cycles_and_nothing_else_of_them(tmp_path: Path, own: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"preset top: cycles: found .*, expected a number of cycles"):
        presets.resolved("top", written(tmp_path, top={"params": own}))


def test_a_layer_beneath_two_others_is_laid_once_and_first(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        top={"extends": ["left", "right"]},
        left={"extends": ["base"], "params": {"train": {"epochs": 2}}},
        right={"extends": ["base"], "params": {"seed": 1}},
        base={"params": {"seed": 0, "cycles": 1, "train": {"epochs": 1, "momentum": 0.9}}},
    )
    assert list(presets.lineage("top", folder)) == ["base", "left", "right", "top"]
    assert presets.resolved("top", folder) == {"seed": 1, "train": {"epochs": 2, "momentum": 0.9}} | params.chain(1)


def test_another_plug_in_brings_none_of_the_old_one_s_parameters() -> None:
    under = {"train": {"epochs": 1, "objective": {"name": "ema", "weight": 0.05}}}
    assert presets.laid({"train": {"objective": {"name": "none"}}}, under) == {
        "train": {"epochs": 1, "objective": {"name": "none"}}
    }
    same = presets.laid({"train": {"objective": {"name": "ema", "decay": 0.9}}}, under)
    assert same["train"]["objective"] == {"name": "ema", "weight": 0.05, "decay": 0.9}


def test_the_page_of_presets_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("presets_page", REPOSITORY / "docs/presets.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (REPOSITORY / "docs/presets.md").read_text(encoding="utf-8"), (
        "python docs/presets.py writes it anew"
    )
