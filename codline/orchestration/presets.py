"""Presets: complete parameters, composed of the layers in presets/, in which every value is written once."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from codline.core import params
from codline.core.errors import UserError
from codline.core.params import Section, near, shown

FOLDER = Path("presets")


class Layer(Section):
    """A file of presets/: what it stands on, and what it says differently."""

    about: str
    extends: list[str] = Field(
        default_factory=list
    )  # laid in this order; each layer brings those beneath it, and none is laid twice
    source: str = ""  # where the values come from,
    sources: dict[str, str] = Field(default_factory=dict)  # and those that come from elsewhere, by dotted key
    params: dict[str, Any] = Field(default_factory=dict)

    def origin(self, key: str) -> str:
        """Where this layer has a value from; the longest dotted key that fits decides."""
        fits = [named for named in self.sources if f"{key}.".startswith(f"{named}.")]
        return self.sources[max(fits, key=len)] if fits else self.source


def names(folder: Path = FOLDER) -> list[str]:
    """The presets; the folders beside them hold layers that are complete only together."""
    if not folder.is_dir():
        raise UserError(f"{folder}: not found; run this from the root of a codline project")
    return sorted(path.stem for path in folder.glob("*.yaml"))


def resolved(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """A params document with every section; whether its values are right, the stages judge."""
    if name not in names(folder):
        raise UserError(f"preset: unknown preset {name!r}{near(name, names(folder))}")
    return unrolled(name, composed(lineage(name, folder)))


def composed(layers: dict[str, Layer]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for layer in layers.values():
        document = laid(layer.params, document)
    return document


def unrolled(name: str, document: dict[str, Any]) -> dict[str, Any]:
    count = document.get("cycles")
    if type(count) is not int or "queries" in document:
        raise UserError(
            f"preset {name}: cycles: found {shown(count)}, expected a number of cycles, and no queries: they follow from it"
        )
    return document | params.chain(count)


def lineage(name: str, folder: Path = FOLDER, above: tuple[str, ...] = ()) -> dict[str, Layer]:
    """The layers of a preset by name, those beneath first, itself last."""
    if name in above:
        raise UserError(
            f"{file(above[-1], folder)}: extends: {' -> '.join([*above[above.index(name) :], name])} goes round in a circle"
        )
    if above and not file(name, folder).is_file():
        known = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))
        raise UserError(f"{file(above[-1], folder)}: extends: unknown layer {name!r}{near(name, known)}")
    layer = read(file(name, folder))
    found: dict[str, Layer] = {}
    for beneath in layer.extends:
        found |= lineage(beneath, folder, (*above, name))
    return found | {name: layer}


def file(name: str, folder: Path) -> Path:
    return folder / f"{name}.yaml"


def read(path: Path) -> Layer:
    try:
        return Layer.model_validate(params.load(path))
    except ValidationError as error:
        raise UserError(f"{path}: {params.sentence(error.errors()[0], Layer)}") from error


def laid(over: dict[str, Any], under: dict[str, Any]) -> dict[str, Any]:
    """`over` upon `under`; where it names another plug-in, nothing shows through: that one has other parameters."""
    if "name" in over and over["name"] != under.get("name"):
        under = {}
    return under | {
        key: laid(value, under.get(key) or {}) if isinstance(value, dict) else value for key, value in over.items()
    }


def leaves(value: Any, *above: str) -> dict[str, Any]:
    """{dotted key: value}; an empty section is a leaf."""
    if not isinstance(value, dict) or not value:
        return {".".join(above): value}
    return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, *above, str(name)).items()}


def origins(layers: dict[str, Layer]) -> dict[str, str]:
    """{dotted key: where the value that the layers end up with is from}. A layer may vouch for a value that it does not change."""
    found: dict[str, str] = {}
    for key in leaves(composed(layers)):
        for layer in layers.values():
            if key in leaves(layer.params) or key in layer.sources:
                found[key] = layer.origin(key)
    return found
