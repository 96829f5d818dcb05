"""params.yaml as typed, frozen values: a wrong key or type is refused with one sentence."""

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.errors import UserError


class Section(BaseModel):
    """Frozen and closed: what params.yaml says is what runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Compute(Section):
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: PositiveInt = 1  # other thread counts give other bits: the reductions are split differently
    deterministic: bool = True
    instructions: Literal["native", "avx2", "baseline"] = "avx2"  # which vector instructions the CPU may use


class Link(Section):
    prev: str


Cycles = dict[str, Link]
# 0.05 is five per cent of the pool, 72 is seventy-two images.
Amount = Annotated[PositiveInt | Annotated[float, Field(gt=0, lt=1)], Field(union_mode="left_to_right")]
SHARED = ("seed", "compute", "cycles", "queries")

S = TypeVar("S", bound=BaseModel)


def amount(value: float, total: int) -> int:
    return value if isinstance(value, int) else max(1, round(value * total))


def load(path: Path) -> dict[str, Any]:
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: not found; run this from the root of a codline project") from error
    except YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected sections, found {type(raw).__name__}")
    return raw


def section(raw: dict[str, Any], name: str, kind: type[S]) -> S:
    return parsed({name: raw.get(name, {})}, kind, name)


def parsed(raw: dict[str, Any], kind: type[S], name: str) -> S:
    try:
        return kind.model_validate(raw[name])
    except ValidationError as error:
        raise UserError("params.yaml: " + sentence(error.errors()[0], name, kind)) from error


def seed(raw: dict[str, Any]) -> int:
    value = raw.get("seed")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"params.yaml: seed: found {value!r}, expected a whole number that is not negative")
    return value


def cycles(raw: dict[str, Any]) -> Cycles:
    """Check the chain init -> c1 -> c2 ..., and that every cycle but the last has a query."""

    class Chain(Section):
        cycles: Cycles
        queries: Cycles

    chain = parsed({"chain": {key: raw.get(key, {}) for key in ("cycles", "queries")}}, Chain, "chain")
    before = "init"
    for name, link in chain.cycles.items():
        if link.prev != before:
            raise UserError(f"params.yaml: cycles.{name}.prev: found {link.prev!r}, expected {before!r}: each cycle follows the one above it")
        before = name
    if not chain.cycles:
        raise UserError("params.yaml: cycles: found none, expected at least c1: {prev: init}")
    expected = list(chain.cycles)[:-1]
    if list(chain.queries) != expected or any(chain.queries[c] != chain.cycles[c] for c in expected):
        raise UserError(f"params.yaml: queries: found {', '.join(chain.queries) or 'none'}, expected the same lines as cycles without the last: {', '.join(expected) or 'none'}")
    return chain.cycles


def chain(count: int) -> dict[str, Any]:
    """The `cycles` and `queries` of a campaign of so many cycles."""
    if count < 1:
        raise UserError(f"cycles: found {count}, expected at least 1")
    links = {f"c{i}": {"prev": f"c{i - 1}" if i > 1 else "init"} for i in range(1, count + 1)}
    return {"cycles": links, "queries": dict(list(links.items())[:-1])}


def known(raw: dict[str, Any], names: list[str]) -> None:
    for key in raw:
        if key not in names:
            raise UserError(f"params.yaml: {key}: unknown section{near(str(key), names)}")


def near(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word.lower().replace("-", "_"), words, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else f"; expected one of {', '.join(sorted(words))}"


def sentence(error: ErrorDetails, name: str, kind: type[BaseModel]) -> str:
    """Say which key, what was found and what was expected."""
    where = ".".join([name, *(str(part) for part in error["loc"] if not str(part).startswith(("function-", "constrained-")))])
    found = error.get("input")
    if error["type"] == "extra_forbidden":
        owner = next((model for model in models_in(kind) if str(error["loc"][-1]) not in model.model_fields and fits(model, error)), kind)
        return f"{where}: unknown key{near(str(error['loc'][-1]), list(owner.model_fields))}"
    if error["type"] == "missing":
        return f"{where}: missing"
    if error["type"] == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in error["ctx"]["expected_tags"].split(",")]
        return f"{where}: unknown {error['loc'][-1] if error['loc'] else name} {error['ctx']['tag']!r}{near(error['ctx']['tag'], tags)}"
    if error["type"] == "union_tag_not_found":
        return f"{where}.name: missing"
    if error["type"] == "value_error":
        return f"{where}: {error['ctx']['error']}"
    return f"{where}: found {found!r}, expected {error['msg'].removeprefix('Input should be ').removeprefix('a valid ')}"


def models_in(kind: Any) -> list[type[BaseModel]]:
    """`kind` and every model reachable through its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind, *(m for field in kind.model_fields.values() for m in models_in(field.annotation))]
    return [m for part in get_args(kind) for m in models_in(part)]


def fits(model: type[BaseModel], error: ErrorDetails) -> bool:
    """Is `model` the one whose key was refused? A union's member is found by its tag in the location."""
    if len(error["loc"]) < 2:
        return True
    tag = error["loc"][-2]
    field = model.model_fields.get("name")
    return field is not None and tag in get_args(field.annotation)
