"""Walks the families of plug-ins for the contract tests, so that each member of a union is tested."""

import itertools
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from codline.cli.plugins import members

# The key of params.yaml that selects a member of each family.
PARAMS_KEY = {
    "annotators": "annotate.annotator",
    "datasets": "prepare.dataset",
    "models": "prepare.model",
    "objectives": "train.objectives",
    "pickers": "select.pick",
    "strategies": "score.strategy",
}

# For strategies that train a network of their own.
SMALL_TRAINING = {"steps": 3, "width": 2, "batch_size": 4, "latent": 4, "hidden": 4}

SCIKIT_ACTIVEML_QUERIES = (
    "Badge",
    "Clue",
    "CoreSet",
    "DiscriminativeAL",
    "Falcun",
    "MaxHerding",
    "ProbCover",
    "Quire",
    "RandomSampling",
    "UncertaintySampling",
)
# Parameters to test of members that have required ones; without an entry here, such a member is not tested.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "scikit_activeml": [{"query": query} for query in SCIKIT_ACTIVEML_QUERIES],
}
OPTIONAL_PACKAGES = {"baal": "baal"}  # required by these members, but not in the extra dev


def variants(family: str) -> list[Any]:
    """Every member, once for each combination of its Literal parameters; none that loads pretrained weights."""
    found = [kind(**parameters) for kind in members(family) for parameters in parameter_sets(kind)]
    return [member for member in found if getattr(member, "weights", None) in (None, "none")]


def parameter_sets(kind: type[BaseModel]) -> list[dict[str, Any]]:
    if any(field.is_required() for field in kind.model_fields.values()):
        return EXAMPLES.get(kind.model_fields["name"].default, [])
    options = {
        name: get_args(field.annotation)
        for name, field in kind.model_fields.items()
        if get_origin(field.annotation) is Literal
    }
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def as_pytest_param(member: Any) -> Any:
    """Skipped if the member's optional package is not installed."""
    package = OPTIONAL_PACKAGES.get(member.name, "codline")
    missing = pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")
    return pytest.param(member, id=variant_id(member), marks=missing)


def variant_id(member: BaseModel) -> str:
    return "-".join(str(value) for value in member.model_dump().values())
