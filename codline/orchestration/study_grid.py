"""What a studies/*.yaml asks for: arms times seeds, each point a campaign of its own."""

import hashlib
import io
import itertools
import json
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError
from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import UserError
from codline.core.params import Section
from codline.orchestration import workspace

FOLDER = Path("studies")
Overrides = dict[str, Any]  # dotted keys of params.yaml


class Study(Section):
    """One studies/*.yaml. Its arms are named, or every combination of its axes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    base: Overrides = Field(default_factory=dict)  # what all points have in common, on top of the committed params.yaml
    cycles: PositiveInt | None = None
    axes: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)] | None = None
    arms: Annotated[dict[str, Overrides], Field(min_length=1)] | None = None
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    reference: str | None = None  # the arm that the others are compared with: the first, unless it is named

    @property
    def varied(self) -> dict[str, Overrides]:
        """{arm: what it changes}"""
        if self.arms is not None:
            return self.arms
        axes = self.axes or {}
        combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return {", ".join(called(key, value) for key, value in arm.items()): arm for arm in combinations}

    @property
    def compared(self) -> str:
        return self.reference or next(iter(self.varied))


class Point(NamedTuple):
    arm: str
    seed: int
    params: str  # the text of its params.yaml

    @property
    def name(self) -> str:
        return f"{slug(self.arm)}-s{self.seed}"

    @property
    def title(self) -> str:
        return f"{self.arm}, seed {self.seed}"


def called(key: str, value: Any) -> str:
    """A value of an axis in the name of an arm: a plug-in by its name, a number with what it is."""
    if isinstance(value, dict) and "name" in value:
        return " ".join([str(value["name"]), *(f"{k} {v}" for k, v in value.items() if k != "name")])
    last = key.rpartition(".")[2]
    return str(value) if last == "name" else f"{last} {value}"


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", words.lower()).strip("-")


def found(name: str) -> Path:
    """A study by its name or its file."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        names = sorted(file.stem for file in FOLDER.glob("*.yaml"))
        raise UserError(
            f"{path}: not found{params.near(Path(name).stem, names) if names else '; there is no study in ' + str(FOLDER)}"
        )
    return path


def read(path: Path) -> Study:
    raw = inherited(path)
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {params.sentence(error.errors()[0], Study)}") from error
    if (study.axes is None) == (study.arms is None):
        raise UserError(
            f"{path}: found {'both' if study.axes else 'neither'} axes {'and' if study.axes else 'nor'} arms, expected one of them"
        )
    doubled = [seed for i, seed in enumerate(study.seeds) if seed in study.seeds[:i]]
    if doubled:
        raise UserError(f"{path}: seeds: found {doubled[0]} twice")
    if study.compared not in study.varied:
        raise UserError(f"{path}: reference: found {study.compared!r}{params.near(study.compared, list(study.varied))}")
    names = [slug(arm) for arm in study.varied]
    if len(set(names)) < len(names):
        raise UserError(
            f"{path}: arms: found two whose names differ in punctuation alone, expected names that can be told apart as folders"
        )
    return study


def inherited(path: Path) -> dict[str, Any]:
    """A study may be like another one, but for its arms: then it has that one's base, cycles and seeds where it says nothing else."""
    raw = params.load(path)
    like = raw.pop("like", None)
    if like is None:
        return raw
    other = read(found(str(like)))
    common = {"cycles": other.cycles, "seeds": other.seeds} | raw
    return common | {"base": other.base | (raw["base"] if isinstance(raw.get("base"), dict) else {})}


def points(study: Study, committed: str, overrides: Overrides) -> list[Point]:
    """Every point, seed by seed, so that arms can be compared early. `overrides` are the user's: for all points, and not for what the study varies."""
    for key in overrides:
        rivals = [
            other
            for arm in study.varied.values()
            for other in [*arm, "seed"]
            if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")
        ]
        if rivals:
            raise UserError(f"-S {key}: the study varies {rivals[0]} itself")
    chain = params.chain(study.cycles) if study.cycles else {}
    common = changed(committed, study.base, chain, overrides)
    return [
        Point(arm, seed, changed(common, own, {"seed": seed}))
        for seed in study.seeds
        for arm, own in study.varied.items()
    ]


def changed(text: str, *layers: Overrides) -> str:
    """The text of a params.yaml with changes, one layer after the other: another plug-in's name takes the old one's parameters away."""
    yaml = YAML()
    yaml.width = 200
    document = yaml.load(text)
    for key, value in itertools.chain.from_iterable(layer.items() for layer in layers):
        workspace.put(document, key.split("."), value, key)
    anchor(document["prepare"].get("dataset"))
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def anchor(dataset: Any) -> None:
    """Files of a dataset by their full path: a point runs in another directory than the one they are named from."""
    for key, value in dataset.items() if isinstance(dataset, dict) else ():
        if isinstance(value, list):
            dataset[key] = [full(item) for item in value]
        elif key != "name":
            dataset[key] = full(value)


def full(value: Any) -> Any:
    return str(Path(value).resolve()) if isinstance(value, str) and Path(value).is_file() else value


def shared(point: Point, stages: dict[str, Any]) -> dict[str, str]:
    """{stage: what decides it} of the stages that points may have in common: prepare, and the training of the first cycle, before any query."""
    raw = YAML(typ="safe", pure=True).load(point.params)
    sections = {
        "prepare": stages["prepare"]["params"],
        f"train@{next(iter(raw['cycles']))}": stages["prepare"]["params"] + stages["train"]["do"]["params"],
    }
    return {
        stage: hashlib.sha256(json.dumps([raw.get(key) for key in keys], sort_keys=True).encode()).hexdigest()
        for stage, keys in sections.items()
    }
