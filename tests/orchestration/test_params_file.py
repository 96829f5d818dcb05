"""params.yaml is edited as a whole: overrides and presets are checked first, comments are kept."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from codline.cli.plugins import members
from codline.core import params
from codline.core.errors import UserError
from codline.orchestration import people_defaults
from codline.orchestration.params_file import PARAMS, set_value, update_params
from codline.strategies.base import BatchStrategy, Strategy
from tests.project import Project
from tests.workspace import REPOSITORY


@pytest.fixture(autouse=True)
def use_fork_server(fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fork_server_environment.items():
        monkeypatch.setenv(name, value)


def test_update_params_writes_nothing_if_an_override_is_invalid(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    before = (project.root / "params.yaml").read_bytes()
    with pytest.raises(UserError, match=r"train\.epochs: found 'many'"):
        update_params({"train.epochs": "many", "seed": 3})
    with pytest.raises(UserError, match=r"params\.yaml has no 'trian'; did you mean train\?"):
        update_params({"trian.epochs": 3})
    assert (project.root / "params.yaml").read_bytes() == before


def test_update_params_keeps_the_comments_of_params_yaml(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    update_params({"train.epochs": 5, "score.strategy.name": "entropy"})
    text = (project.root / "params.yaml").read_text()
    assert "epochs: 5" in text
    assert "# share of the epochs after" in text
    assert "first_cycle" not in text


def test_update_params_writes_mappings_in_one_line_and_leaves_valid_yaml_when_it_takes_them_back(
    untouched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(untouched.root)
    Path("photos").mkdir()
    dataset = {"name": "folder", "path": "photos", "size": 64}
    update_params({"prepare.dataset": dataset, "annotate.annotator": {"name": "people"}})
    text = PARAMS.read_text()
    assert "\ninputs: {images: photos} #" in text
    assert "\n  dataset: {name: folder, path: photos, size: 64}\n" in text
    assert "\n  pick: {name: power, beta: 1.0} #" in text
    assert "\n  c1: {prev: init, answers: answers/c1.csv}\n" in text
    update_params({}, "digits")
    assert params.read_yaml(PARAMS) == params.read_yaml(REPOSITORY / "params.yaml")


def test_update_params_changes_objectives_by_name_and_as_a_whole(
    untouched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(untouched.root)
    update_params({"train.objectives": [{"name": "ema"}, {"name": "ll4al"}], "train.objectives.ema.weight": 0.5})
    assert "\n  objectives: [{name: ema, weight: 0.5}, {name: ll4al}] " in PARAMS.read_text()
    update_params({"train.objectives": []})
    assert "\n  objectives: [] " in PARAMS.read_text()
    with pytest.raises(UserError, match=r"train\.objectives\.ema\.weight: params\.yaml has no 'ema'$"):
        update_params({"train.objectives.ema.weight": 0.5})


def test_update_params_writes_a_preset_and_overrides_it(untouched: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(untouched.root)
    update_params({}, "digits")
    assert params.read_yaml(PARAMS) == params.read_yaml(REPOSITORY / "params.yaml")
    assert "# share of the epochs after" in PARAMS.read_text()
    update_params({"score.strategy.name": "entropy"} | params.cycle_chain(2), "digits")
    found = params.read_yaml(PARAMS)
    assert found["score"]["strategy"] == {"name": "entropy"}
    assert list(found["cycles"]) == ["c1", "c2"]
    assert found["train"] == params.read_yaml(REPOSITORY / "params.yaml")["train"]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"train": {"epochs": "many"}}, "train.epochs: found 'many', expected a whole number"),
        ({"train": {"epoch": 3}}, "train.epoch: unknown key; did you mean epochs?"),
        ({"prepare": {"model": {"name": "drn"}}}, "prepare.model.name: unknown model 'drn'; "),
        ({"trian": {}}, "trian: unknown section; did you mean train?"),
    ],
)
def test_update_params_writes_nothing_if_a_preset_is_invalid(
    untouched: Project, monkeypatch: pytest.MonkeyPatch, own: dict[str, object], sentence: str
) -> None:
    monkeypatch.chdir(untouched.root)
    before = PARAMS.read_bytes()
    with Path("presets/mine.yaml").open("w") as file:
        YAML().dump({"about": "broken", "extends": ["digits"], "params": own}, file)
    with pytest.raises(UserError) as refused:
        update_params({"seed": 3}, "mine")
    assert str(refused.value).startswith(f"with the preset mine, params.yaml: {sentence}")
    with pytest.raises(UserError, match=r"unknown preset 'mime'; did you mean mine"):
        update_params({"seed": 3}, "mime")
    assert PARAMS.read_bytes() == before


def test_update_params_uses_all_labels_and_spreads_queries_when_people_become_annotators(
    untouched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(untouched.root)
    update_params({"annotate.annotator": {"name": "people"}})
    found = params.read_yaml(PARAMS)
    assert (found["prepare"]["start"], found["select"]["pick"]) == ("all", people_defaults.PICK)
    assert found["queries"] == {"c1": {"prev": "init", "answers": "answers/c1.csv"}}
    update_params({"prepare.start": 30, "select.pick.name": "top"} | params.cycle_chain(3))
    found = params.read_yaml(PARAMS)
    assert (found["prepare"]["start"], found["select"]["pick"]) == (30, {"name": "top"})
    assert {link["answers"] for link in found["queries"].values()} == {"answers/c1.csv", "answers/c2.csv"}


@pytest.mark.parametrize(
    ("changes", "start", "pick"),
    [
        ({"prepare.start": 30}, 30, "power"),
        ({"select.pick.name": "softmax"}, "all", "softmax"),
        ({"score.strategy": {"name": "core_set"}}, "all", "top"),
    ],
)
def test_people_defaults_leave_what_is_given(changes: dict[str, Any], start: object, pick: str) -> None:
    document = params.read_yaml(REPOSITORY / "params.yaml")
    for key, value in ({"annotate.annotator.name": "people"} | changes).items():
        set_value(document, key, value)
    for key, value in people_defaults.people_defaults(document, was_simulated=True, given=list(changes)).items():
        set_value(document, key, value)
    assert (document["prepare"]["start"], document["select"]["pick"]["name"]) == (start, pick)


@pytest.mark.parametrize("strategy", members("strategies"))
def test_selects_whole_queries_knows_every_strategy(strategy: type[Strategy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    name = strategy.model_fields["name"].default
    assert people_defaults.selects_whole_queries(name) == issubclass(strategy, BatchStrategy)
