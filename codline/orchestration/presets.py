"""Presets: complete parameter files, merged from the layers in presets/. Each value is written in one layer only."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from codline.core import params
from codline.core.errors import UserError
from codline.core.params import Section
from codline.core.params_errors import error_sentence, format_value, suggestion

FOLDER = Path("presets")


class PresetLayer(Section):
    """A file of presets/: the layers it extends and the parameters it sets."""

    about: str
    # Merged in this order, after the layers that they extend in turn; a layer that is reached twice is merged once.
    extends: list[str] = Field(default_factory=list)
    source: str = ""  # where the values come from
    sources: dict[str, str] = Field(default_factory=dict)  # exceptions to `source`, by dotted key
    params: dict[str, Any] = Field(default_factory=dict)

    def source_of(self, key: str) -> str:
        """Where this layer's value of a dotted key comes from; the longest matching key of `sources` decides."""
        matches = [prefix for prefix in self.sources if f"{key}.".startswith(f"{prefix}.")]
        return self.sources[max(matches, key=len)] if matches else self.source


def names(folder: Path = FOLDER) -> list[str]:
    """The presets. Subdirectories hold layers that are not complete by themselves."""
    if not folder.is_dir():
        raise UserError(f"{folder}: not found; run this from the root of a codline project")
    return sorted(path.stem for path in folder.glob("*.yaml"))


def resolve(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """The parameters of a preset, with every section. Their values are validated by the stages, not here."""
    if name not in names(folder):
        raise UserError(f"preset: unknown preset {format_value(name)}{suggestion(name, names(folder))}")
    return expand_cycles(name, merge_layers(load_layers(name, folder)))


def merge_layers(layers: dict[str, PresetLayer]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for layer in layers.values():
        document = merge_params(document, layer.params)
    return document


def expand_cycles(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Replace the number of cycles by the sections `cycles` and `queries` of params.yaml."""
    count = document.get("cycles")
    if type(count) is not int or "queries" in document:
        raise UserError(
            f"preset {name}: cycles: found {format_value(count)}, expected a number of cycles, "
            "and no queries: they follow from it"
        )
    return document | params.cycle_chain(count)


def load_layers(name: str, folder: Path = FOLDER, extended_by: tuple[str, ...] = ()) -> dict[str, PresetLayer]:
    """A layer and all that it extends, by name, in the order in which they are merged: itself last."""
    if name in extended_by:
        circle = " -> ".join([*extended_by[extended_by.index(name) :], name])
        raise UserError(f"{layer_file(extended_by[-1], folder)}: extends: {circle} goes round in a circle")
    if extended_by and not os.path.isfile(layer_file(name, folder)):  # noqa: PTH113 (is_file raises for long names)
        known = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))
        where = layer_file(extended_by[-1], folder)
        raise UserError(f"{where}: extends: unknown layer {format_value(name)}{suggestion(name, known)}")
    layer = read_layer(layer_file(name, folder))
    layers: dict[str, PresetLayer] = {}
    for parent in layer.extends:
        layers |= load_layers(parent, folder, (*extended_by, name))
    return layers | {name: layer}


def layer_file(name: str, folder: Path) -> Path:
    return folder / f"{name}.yaml"


def read_layer(path: Path) -> PresetLayer:
    try:
        return PresetLayer.model_validate(params.read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path}: {error_sentence(error.errors()[0], PresetLayer)}") from error


def merge_params(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, section by section. Naming another plug-in drops the parameters of the one in `base`.

    A list of plug-ins replaces the one in `base`; a member that is in both keeps its parameters.
    """
    if "name" in changes and changes["name"] != base.get("name"):
        base = {}
    return base | {key: merge_value(base.get(key), value) for key, value in changes.items()}


def merge_value(base: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return merge_params(base or {}, value)
    if members := params.plugins_by_name(value):
        before = params.plugins_by_name(base)
        return [merge_params(before.get(name, {}), member) for name, member in members.items()]
    return value


def flatten(value: Any, *prefix: str) -> dict[str, Any]:
    """{dotted key: value}; an empty section counts as a value. In lists of plug-ins, names are part of the key."""
    if members := params.plugins_by_name(value):
        value = {name: {key: item for key, item in each.items() if key != "name"} for name, each in members.items()}
    if not isinstance(value, dict) or not value:
        return {".".join(prefix): value}
    return {key: leaf for name, inner in value.items() for key, leaf in flatten(inner, *prefix, str(name)).items()}


def value_sources(layers: dict[str, PresetLayer]) -> dict[str, str]:
    """{dotted key: where its merged value comes from}. A layer can give a source for a value that it does not set."""
    sources: dict[str, str] = {}
    for key in flatten(merge_layers(layers)):
        for layer in layers.values():
            if key in flatten(layer.params) or key in layer.sources:
                sources[key] = layer.source_of(key)
    return sources
