"""The grid of a study: a studies/*.yaml expanded into points.

An arm is a named set of changes to params.yaml; a point is one arm with one seed, and runs as a campaign of its own.
"""

import itertools
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from codline.core import params, params_errors
from codline.core.errors import UserError
from codline.core.params import Section
from codline.data.folder_walk import NOT_PLAIN
from codline.orchestration import presets
from codline.orchestration.params_file import dump, in_one_line, params_yaml, set_value

FOLDER = Path("studies")
MAX_ARMS = 1000
MAX_ARM = 100  # characters of an arm's name, which becomes that of a folder
Overrides = dict[str, Any]  # {dotted key of params.yaml: value}


class Study(Section):
    """One studies/*.yaml. Its arms are either named, or every combination of the values of its axes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    preset: str | None = None  # what points start from; default: the committed params.yaml
    base: Overrides = Field(default_factory=dict)  # changes to it that all points share
    cycles: PositiveInt | None = None
    axes: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)] | None = None
    arms: Annotated[dict[str, Overrides], Field(min_length=1)] | None = None
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    reference: str | None = None  # the arm that the others are compared with; default: the first

    @property
    def arm_overrides(self) -> dict[str, Overrides]:
        """{arm: its changes to params.yaml}"""
        if self.arms is not None:
            return self.arms
        axes = self.axes or {}
        combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return {", ".join(value_label(key, value) for key, value in arm.items()): arm for arm in combinations}

    @property
    def reference_arm(self) -> str:
        return self.reference or next(iter(self.arm_overrides))


class StudyPoint(NamedTuple):
    """One arm with one seed."""

    arm: str
    seed: int
    params: str  # the text of its params.yaml

    @property
    def name(self) -> str:
        """The name of its directory and files."""
        return f"{slug(self.arm)}-s{self.seed}"

    @property
    def title(self) -> str:
        return f"{self.arm}, seed {self.seed}"


def value_label(key: str, value: Any) -> str:
    """An axis value as part of an arm's name: plug-ins by their names, any other value after its key."""
    if isinstance(value, dict) and "name" in value:
        return " ".join([str(value["name"]), *(f"{k} {v}" for k, v in value.items() if k != "name")])
    last = key.rpartition(".")[2]
    if value == []:
        return f"no {last}"
    if members := params.plugins_by_name(value):
        return " + ".join(value_label(key, member) for member in members.values())
    return str(value) if last == "name" else f"{last} {value}"


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-")


def find_study(name: str) -> Path:
    """The file of a study, given by its name or its path."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not os.path.isfile(path):  # noqa: PTH113 (Path.is_file raises for a name that is too long)
        names = sorted(file.stem for file in FOLDER.glob("*.yaml"))
        hint = params_errors.suggestion(Path(name).stem, names) if names else f"; there is no study in {FOLDER}"
        raise UserError(f"{path}: not found{hint}")
    return path


def read_study(path: Path, children: tuple[Path, ...] = ()) -> Study:
    """`children`: the studies that are like this one."""
    if path in children:
        raise UserError(f"{path}: like: {' -> '.join(map(str, children))} goes round in a circle")
    raw = read_with_inheritance(path, children)
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {params_errors.error_sentence(error.errors()[0], Study)}") from error
    if (study.axes is None) == (study.arms is None):
        both_or_neither = "both axes and arms" if study.axes else "neither axes nor arms"
        raise UserError(f"{path}: found {both_or_neither}, expected one of them")
    count = math.prod(len(values) for values in study.axes.values()) if study.axes else len(study.arms or {})
    if count > MAX_ARMS:
        raise UserError(f"{path}: found {count} arms, expected at most {MAX_ARMS}")
    if varied := [arm for arm, changes in study.arm_overrides.items() if "seed" in changes]:
        raise UserError(f"{path}: found the key seed in the arm {varied[0]!r}, expected seeds for all arms")
    repeated = [seed for i, seed in enumerate(study.seeds) if seed in study.seeds[:i]]
    if repeated:
        raise UserError(f"{path}: seeds: found {repeated[0]} twice")
    arms = list(study.arm_overrides)
    if study.reference_arm not in arms:
        hint = params_errors.suggestion(study.reference_arm, arms)
        raise UserError(f"{path}: reference: found {study.reference_arm!r}{hint}")
    for arm in arms:
        if not re.search("[a-z0-9]", slug(arm)) or NOT_PLAIN.search(arm) or len(arm) > MAX_ARM:
            found = f"{path}: arms: found the name {params_errors.format_value(arm)}"
            raise UserError(
                f"{found}, expected at most {MAX_ARM} characters, letters or digits among them, in one line"
            )
    if len({slug(arm) for arm in arms}) < len(arms):
        raise UserError(
            f"{path}: arms: found two whose names differ in punctuation alone, "
            "expected names that can be told apart as folders"
        )
    return study


def read_with_inheritance(path: Path, children: tuple[Path, ...]) -> dict[str, Any]:
    """A study's raw values. `like: other` takes preset, base, cycles and seeds from it, unless they are set here."""
    raw = params.read_yaml(path)
    like = raw.pop("like", None)
    if like is None:
        return raw
    parent = read_study(find_study(str(like)), (*children, path))
    base = raw["base"] if isinstance(raw.get("base"), dict) else {}
    inherited = {"preset": parent.preset, "cycles": parent.cycles, "seeds": parent.seeds}
    return inherited | raw | {"base": parent.base | base}


def study_points(study: Study, committed: str, overrides: Overrides) -> list[StudyPoint]:
    """Every point of a study, one seed after the other, so that arms can be compared early.

    `committed` is the text of the committed params.yaml, from which they start unless the study names a preset.
    `overrides` are the user's and apply to all points; they must not touch what the study varies.
    """
    varied = [*dict.fromkeys(key for arm in study.arm_overrides.values() for key in arm), "seed"]
    for key in overrides:
        conflicts = [
            other for other in varied if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")
        ]
        if conflicts:
            raise UserError(f"-S {key}: the study varies {conflicts[0]} itself")
    cycles = params.cycle_chain(study.cycles) if study.cycles else {}
    start = committed if study.preset is None else preset_text(study)
    common = apply_overrides(start, study.base, cycles, overrides)
    return [
        StudyPoint(arm, seed, apply_overrides(common, changes, {"seed": seed}))
        for seed in study.seeds
        for arm, changes in study.arm_overrides.items()
    ]


def preset_text(study: Study) -> str:
    """The study's preset as the text of a params.yaml."""
    assert study.preset is not None
    try:
        values = presets.resolve(study.preset)
    except UserError as error:
        raise UserError(f"study {study.name}: {error}") from error
    return dump(params_yaml(), {key: in_one_line(value) for key, value in values.items()})


def apply_overrides(text: str, *layers: Overrides) -> str:
    """Apply changes to the text of a params.yaml, in order. Naming another plug-in drops the old one's parameters."""
    yaml = params_yaml()
    document = yaml.load(text)
    for key, value in itertools.chain.from_iterable(layer.items() for layer in layers):
        set_value(document, key, value)
    return dump(yaml, document)
