"""The families of plug-ins, and what they offer: a new member is tested for having joined its union."""

import itertools
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from codline.cli.plugins import members

# family: the key of params.yaml that chooses the member
CHOSEN_BY = {
    "annotators": "annotate.annotator",
    "datasets": "prepare.dataset",
    "models": "prepare.model",
    "objectives": "train.objective",
    "pickers": "select.pick",
    "strategies": "score.strategy",
}


SMALL = {
    "steps": 3,
    "width": 2,
    "batch_size": 4,
    "latent": 4,
    "hidden": 4,
}  # of what trains a network of its own, so that it takes no time


# of members with a required parameter: what is tested
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "scikit_activeml": [
        {"query": query}
        for query in (
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
    ]
}
PACKAGES = {"baal": "baal"}  # of members that run only where these are installed, and are not in the extra dev


def variants(family: str) -> list[Any]:
    """Every member with every value of its multiple-choice parameters; not those that need files of the user's, or a download."""
    found = [kind(**choice) for kind in members(family) for choice in examples(kind)]
    return [member for member in found if getattr(member, "weights", None) in (None, "none")]


def examples(kind: type[BaseModel]) -> list[dict[str, Any]]:
    if any(field.is_required() for field in kind.model_fields.values()):
        return EXAMPLES.get(kind.model_fields["name"].default, [])
    return choices(kind)


def as_parameter(member: Any) -> Any:
    """As a parameter of a test, skipped where its package is not installed."""
    package = PACKAGES.get(member.name, "codline")
    return pytest.param(
        member,
        id=spelled(member),
        marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"),
    )


def choices(kind: type[BaseModel]) -> list[dict[str, Any]]:
    options = {
        name: get_args(field.annotation)
        for name, field in kind.model_fields.items()
        if get_origin(field.annotation) is Literal
    }
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def spelled(member: BaseModel) -> str:
    """For the names of tests."""
    return "-".join(str(value) for value in member.model_dump().values())
