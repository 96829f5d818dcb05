"""Presets: complete, merged without repetition, refused with one sentence, and documented on an up-to-date page."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import UserError
from codline.orchestration import presets
from codline.strategies import AnyStrategy
from stages.check_params import check
from tests.workspace import REPOSITORY

FOLDER = REPOSITORY / "presets"
NAMES = presets.names(FOLDER)
LAYERS = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.yaml"))
COMMITTED = params.read_yaml(REPOSITORY / "params.yaml")
DATASETS = ("cifar10", "cifar100", "svhn", "caltech101")
RIVALS = ("random", "ll4al", "vaal", "ta-vaal", "sraal", "core-set", "uncertain-gcn", "core-gcn", "mc-dropout", "qbc")
RELEASED_CYCLES = {
    **{f"cifar10-{rival}": 10 for rival in ("ll4al", "ta-vaal")},
    **{f"cifar10-{rival}": 5 for rival in ("core-set", "uncertain-gcn", "core-gcn")},
}


def write_layers(folder: Path, **layers: dict[str, Any]) -> Path:
    """`__` in a name becomes a slash."""
    for name, layer in layers.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            YAML(typ="safe", pure=True).dump({"about": name} | layer, file)
    return folder


def flat_values(name: str) -> dict[str, Any]:
    return presets.flatten(presets.resolve(name, FOLDER))


def test_presets_cover_the_datasets_of_the_paper_and_the_small_ones() -> None:
    variants = {f"{dataset}-{variant}" for dataset in DATASETS for variant in ("paper", "released")}
    full = {f"{dataset}-full" for dataset in (*DATASETS, "digits", "fashion-mnist", "cityscapes", "camvid")}
    others = {"cityscapes-paper", "cifar10-codline", "digits", "fashion-mnist", "cifar10-small"}
    assert set(NAMES) >= variants | full | others


@pytest.mark.parametrize("name", NAMES)
def test_preset_has_every_section_and_every_key_of_params_yaml(name: str) -> None:
    document = presets.resolve(name, FOLDER)
    assert set(document) == set(COMMITTED)
    assert len(params.parse_cycles(document)) == (1 if name.endswith("-full") else RELEASED_CYCLES.get(name, 7))
    for section in set(COMMITTED) - {"seed", "cycles", "queries"}:
        assert set(document[section]) >= set(COMMITTED[section])


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_accepted_by_every_stage(name: str, tmp_path: Path) -> None:
    yaml = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False  # c10 follows c9
    with (tmp_path / "params.yaml").open("w") as file:
        yaml.dump(presets.resolve(name, FOLDER), file)
    check(tmp_path / "params.yaml")


def test_preset_digits_is_the_committed_params_yaml() -> None:
    hint = "change the layer that differs, then: codline preset digits"
    assert presets.resolve("digits", FOLDER) == COMMITTED, hint


@pytest.mark.parametrize("name", NAMES)
def test_layers_do_not_repeat_a_value_of_a_layer_they_extend(name: str) -> None:
    merged: dict[str, Any] = {}
    for layer in presets.load_layers(name, FOLDER).values():
        before, own = presets.flatten(merged), presets.flatten(layer.params) if layer.params else {}
        assert [key for key, value in own.items() if key in before and before[key] == value] == []
        merged = presets.merge_params(merged, layer.params)


@pytest.mark.parametrize("name", NAMES)
def test_value_sources_names_a_source_for_every_value(name: str) -> None:
    layers = presets.load_layers(name, FOLDER)
    sources = presets.value_sources(layers)
    assert [key for key in presets.flatten(presets.merge_layers(layers)) if not sources.get(key)] == []


def test_layers_are_all_used_and_give_sources_only_for_values_of_their_presets() -> None:
    keys_of: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for name in NAMES:
        layers = presets.load_layers(name, FOLDER)
        for layer in layers:
            keys_of[layer] |= set(presets.flatten(presets.merge_layers(layers)))
    assert [layer for layer, keys in keys_of.items() if not keys] == []
    for layer, keys in keys_of.items():
        sources = presets.read_layer(presets.layer_file(layer, FOLDER)).sources
        assert [source for source in sources if not any(f"{key}.".startswith(f"{source}.") for key in keys)] == []


@pytest.mark.parametrize(
    ("dataset", "learning_rate", "epochs", "batch_size"),
    [
        ("cifar10", 0.1, 200, 128),
        ("cifar100", 0.1, 200, 128),
        ("svhn", 0.1, 200, 128),
        ("caltech101", 0.01, 50, 64),
        ("cityscapes", 5e-4, 40, 4),
    ],
)
def test_paper_presets_match_the_table_of_implementation_details(
    dataset: str, learning_rate: float, epochs: int, batch_size: int
) -> None:
    values = flat_values(f"{dataset}-paper")
    assert (values["train.learning_rate"], values["train.epochs"]) == (learning_rate, epochs)
    assert values["train.batch_size"] == batch_size
    assert (values["prepare.start"], values["select.budget"]) == (0.10, 0.05)
    assert (values["train.objectives.ema.weight"], values["train.objectives.ema.decay"]) == (0.05, 0.999)
    assert (values["train.objectives.ema.outputs"], values["train.objectives.ema.reduce"]) == ("logits", "sum")
    assert values["score.strategy.first_cycle"] == "largest"


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-full")])
def test_full_presets_label_every_image_and_train_like_the_other_presets(name: str) -> None:
    values, dataset = flat_values(name), name.removesuffix("-full")
    other = flat_values(f"{dataset}-paper" if f"{dataset}-paper" in NAMES else dataset)
    assert (values["prepare.start"], values["queries"], values["train.objectives"]) == ("all", {}, [])
    sections = ("prepare.dataset", "prepare.model", "train.", "evaluate.")
    recipe = [key for key in other if key.startswith(sections) and "objective" not in key]
    assert {key: values[key] for key in recipe} == {key: other[key] for key in recipe}


def test_released_presets_match_the_weights_and_subsets_of_the_authors_code() -> None:
    released = [flat_values(f"{name}-released") for name in DATASETS]
    assert [values["train.objectives.ema.weight"] for values in released] == [0.02, 0.05, 0.005, 0.1]
    assert [values["score.subset"] for values in released] == [25000, 25000, 29302, 4340]
    assert {values["score.strategy.first_cycle"] for values in released} == {"independent"}


@pytest.mark.parametrize("rival", RIVALS)
def test_rival_presets_have_the_settings_of_their_released_code(rival: str) -> None:
    """The strategies' defaults follow the released code, too; where both give a value, they must agree."""
    document = presets.resolve(f"cifar10-{rival}", FOLDER)
    strategy, train = document["score"]["strategy"], document["train"]
    defaults = TypeAdapter(AnyStrategy).validate_python({"name": strategy["name"]}).model_dump()
    assert strategy["name"] == rival.replace("-", "_")
    assert {key: value for key, value in (defaults | strategy).items() if value != defaults[key]} == (
        {"ties": "random"} if rival == "qbc" else {}
    )
    fresh = rival not in ("random", "ll4al", "mc-dropout", "qbc")
    assert (train["start_from"], train["epochs"]) == ("fresh" if fresh else "previous", 200)
    queried = (1000, 1000, 10000) if f"cifar10-{rival}" in RELEASED_CYCLES else None
    found = (document["prepare"]["start"], document["select"]["budget"], document["score"].get("subset"))
    assert found == (queried or ((5000, 2500, None) if rival in ("vaal", "sraal") else (0.10, 0.05, None)))


def test_paper_presets_hold_out_validation_images_and_released_ones_do_not() -> None:
    held_out = {
        name: [flat_values(f"{name}-{variant}")["prepare.validation"] for variant in ("paper", "released")]
        for name in DATASETS
    }
    assert held_out == {"cifar10": [5000, 0], "cifar100": [5000, 0], "svhn": [7326, 0], "caltech101": [915, 0]}


def test_resolve_suggests_similar_names_for_an_unknown_preset() -> None:
    with pytest.raises(UserError, match=r"^preset: unknown preset 'cifar10-papr'; did you mean cifar10-paper or "):
        presets.resolve("cifar10-papr", FOLDER)


def test_names_refuses_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"presets: not found; run this from the root of a codline project"):
        presets.names(tmp_path / "presets")


def test_resolve_refuses_layers_that_extend_each_other_in_a_circle(tmp_path: Path) -> None:
    folder = write_layers(tmp_path, top={"extends": ["a"]}, a={"extends": ["b"]}, b={"extends": ["a"]})
    with pytest.raises(UserError, match=r"b\.yaml: extends: a -> b -> a goes round in a circle"):
        presets.resolve("top", folder)


def test_resolve_suggests_similar_names_for_an_unknown_layer(tmp_path: Path) -> None:
    folder = write_layers(tmp_path, top={"extends": ["methods/papr"]}, methods__paper={})
    sentence = r"top\.yaml: extends: unknown layer 'methods/papr'; did you mean methods/paper"
    with pytest.raises(UserError, match=sentence):
        presets.resolve("top", folder)


@pytest.mark.parametrize(
    "own",
    [{}, {"cycles": {"c1": {"prev": "init"}}}, {"cycles": "many"}, {"cycles": True}, {"cycles": 2, "queries": {}}],
)
def test_resolve_accepts_only_a_number_of_cycles(tmp_path: Path, own: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"preset top: cycles: found .*, expected a number of cycles"):
        presets.resolve("top", write_layers(tmp_path, top={"params": own}))


def test_load_layers_merges_a_layer_that_two_others_extend_once_and_first(tmp_path: Path) -> None:
    folder = write_layers(
        tmp_path,
        top={"extends": ["left", "right"]},
        left={"extends": ["base"], "params": {"train": {"epochs": 2}}},
        right={"extends": ["base"], "params": {"seed": 1}},
        base={"params": {"seed": 0, "cycles": 1, "train": {"epochs": 1, "momentum": 0.9}}},
    )
    assert list(presets.load_layers("top", folder)) == ["base", "left", "right", "top"]
    merged = {"seed": 1, "train": {"epochs": 2, "momentum": 0.9}}
    assert presets.resolve("top", folder) == merged | params.cycle_chain(1)


def test_merge_params_drops_the_parameters_of_a_replaced_plug_in() -> None:
    base = {"score": {"batch_size": 1, "strategy": {"name": "cod", "outputs": "probs"}}}
    replaced = presets.merge_params(base, {"score": {"strategy": {"name": "random"}}})
    assert replaced == {"score": {"batch_size": 1, "strategy": {"name": "random"}}}
    same = presets.merge_params(base, {"score": {"strategy": {"name": "cod", "first_cycle": "random"}}})
    assert same["score"]["strategy"] == {"name": "cod", "outputs": "probs", "first_cycle": "random"}


def test_merge_params_replaces_a_list_of_plug_ins_and_keeps_the_parameters_of_those_in_both() -> None:
    base = {"train": {"objectives": [{"name": "ema", "weight": 0.05}, {"name": "cyclic", "weight": 1.0}]}}
    changes = [{"name": "ll4al"}, {"name": "ema", "decay": 0.9}]
    merged = presets.merge_params(base, {"train": {"objectives": changes}})
    assert merged == {"train": {"objectives": [{"name": "ll4al"}, {"name": "ema", "weight": 0.05, "decay": 0.9}]}}
    assert presets.merge_params(base, {"train": {"objectives": []}}) == {"train": {"objectives": []}}
    assert presets.flatten(merged) == {
        "train.objectives.ll4al": {},
        "train.objectives.ema.weight": 0.05,
        "train.objectives.ema.decay": 0.9,
    }


def test_page_of_presets_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("presets_page", REPOSITORY / "docs/presets.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    committed = (REPOSITORY / "docs/presets.md").read_text(encoding="utf-8")
    assert module.page() == committed, "run python docs/presets.py"
