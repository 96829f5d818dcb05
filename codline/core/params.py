"""params.yaml as typed, frozen values: a wrong key or type is refused with one sentence."""

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveInt, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.core.errors import UserError


class Section(BaseModel):
    """Frozen and closed: what params.yaml says is what runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Compute(Section):
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: PositiveInt = 1  # other thread counts give other bits: the reductions are split differently
    deterministic: bool = True
    instructions: Literal["native", "avx2", "baseline"] = "avx2"  # which vector instructions the CPU may use
    precision: Literal["float32", "bfloat16", "auto"] = (
        "float32"  # of the networks' products; auto: bfloat16 where the device has units for it
    )


class Link(Section):
    prev: str


Cycles = dict[str, Link]
SHARED = ("seed", "compute", "cycles", "queries")

S = TypeVar("S", bound=BaseModel)


def is_amount(value: Any) -> bool:
    is_share = isinstance(value, float) and 0 < value < 1
    return is_share or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def share_or_count(value: Any) -> Any:
    if not is_amount(value):
        raise ValueError("a share of the pool (more than 0, less than 1) or a number of images (1, 2, ...)")
    return value


def share_count_or_all(value: Any) -> Any:
    if value != "all" and not is_amount(value):
        raise ValueError("a share of the pool (more than 0, less than 1), a number of images (1, 2, ...) or all")
    return value


Amount = Annotated[
    int | float, BeforeValidator(share_or_count)
]  # 0.05 is five per cent of the pool, 72 is seventy-two images
Start = Annotated[
    int | float | Literal["all"], BeforeValidator(share_count_or_all)
]  # all: every image of the pool that has a label


def amount(value: float, total: int) -> int:
    return value if isinstance(value, int) else max(1, round(value * total))


class Budget(BaseModel):
    """What of select's section another stage may know."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    budget: Amount


def load(path: Path) -> dict[str, Any]:
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: not found; run this from the root of a codline project") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: found {shown(raw)}, expected sections such as seed and train")
    return raw


def section(raw: dict[str, Any], name: str, kind: type[S]) -> S:
    value = raw.get(name)
    return parsed({} if value is None else value, kind, name)


def parsed(value: Any, kind: type[S], *above: str) -> S:
    """`above` is where in params.yaml the value stands."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise UserError("params.yaml: " + sentence(error.errors()[0], kind, *above)) from error


def seed(raw: dict[str, Any]) -> int:
    value = raw.get("seed")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"params.yaml: seed: found {shown(value)}, expected a whole number that is not negative")
    return value


def cycles(raw: dict[str, Any]) -> Cycles:
    """Check the chain init -> c1 -> c2 ..., and that every cycle but the last has a query."""

    class Chain(Section):
        cycles: Cycles
        queries: Cycles

    chain = parsed({key: {} if raw.get(key) is None else raw[key] for key in ("cycles", "queries")}, Chain)
    before = "init"
    for name, link in chain.cycles.items():
        if link.prev != before:
            raise UserError(
                f"params.yaml: cycles.{name}.prev: found {link.prev!r}, expected {before!r}: each cycle follows the one above it"
            )
        before = name
    if not chain.cycles:
        raise UserError("params.yaml: cycles: found none, expected at least c1: {prev: init}")
    expected = list(chain.cycles)[:-1]
    if list(chain.queries) != expected:
        found, wanted = (", ".join(names) or "none" for names in (chain.queries, expected))
        raise UserError(f"params.yaml: queries: found {found}, expected the lines of cycles without the last: {wanted}")
    for name, link in chain.queries.items():
        if link != chain.cycles[name]:
            raise UserError(
                f"params.yaml: queries.{name}.prev: found {link.prev!r}, expected {chain.cycles[name].prev!r} as in cycles"
            )
    return chain.cycles


def chain(count: int) -> dict[str, Any]:
    """The `cycles` and `queries` of a campaign of so many cycles."""
    if count < 1:
        raise UserError(f"cycles: found {count}, expected at least 1")
    links = {f"c{i}": {"prev": f"c{i - 1}" if i > 1 else "init"} for i in range(1, count + 1)}
    return {
        "cycles": links,
        "queries": {name: dict(link) for name, link in list(links.items())[:-1]},
    }  # no line shared: YAML would write it as an alias


def known(raw: dict[str, Any], names: list[str]) -> None:
    for key in raw:
        if key not in names:
            raise UserError(f"params.yaml: {key}: unknown section{near(str(key), names)}")


def near(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word.lower().replace("-", "_"), words, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; expected {'one of ' if len(words) > 1 else ''}{', '.join(sorted(words)) or 'no keys here'}"


PLAIN = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
    "list_type": "a list",
    "value_error": "{error}",
}


def sentence(error: ErrorDetails, kind: type[BaseModel], *above: str) -> str:
    """Say which key, what was found and what was expected."""
    keys, holder, wanted = walked(kind, error["loc"])
    where, names = ".".join([*above, *keys]), [tag(model) for model in models(wanted)]
    match error["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key{near(keys[-1], list(holder.model_fields) if holder else [])}"
        case "missing":
            return f"{where}: missing"
        case "union_tag_not_found":
            return f"{where}.name: missing; expected one of {', '.join(sorted(names))}"
        case "union_tag_invalid":
            return f"{where}.name: unknown {keys[-1]} {error['ctx']['tag']!r}{near(error['ctx']['tag'], names)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            beneath = next((list(model.model_fields) for model in models(wanted)), [])
            return f"{where}: found {shown(error['input'])}, expected keys beneath it" + (
                f", such as {beneath[0]}" if beneath else ""
            )
    expected = (
        PLAIN[error["type"]].format(**error.get("ctx", {}))
        if error["type"] in PLAIN
        else error["msg"].removeprefix("Input should be ")
    )
    return f"{where}: found {shown(error['input'])}, expected {expected}"


def walked(kind: Any, location: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel] | None, Any]:
    """Follow pydantic's location: the keys as params.yaml spells them, the model that holds the last one, and the type expected there.

    Where a value may be one of several models, pydantic's location names the member; params.yaml does not.
    """
    keys: list[str] = []
    holder: type[BaseModel] | None = None
    for part in location:
        members = models(kind)
        if len(members) > 1:
            kind = next((model for model in members if tag(model) == part), None)
            continue
        keys.append(str(part))
        holder = members[0] if members else None
        if holder is not None:
            kind = holder.model_fields[str(part)].annotation if part in holder.model_fields else None
        else:
            kind = get_args(kind)[1] if get_origin(kind) is dict else None
    return keys, holder, kind


def models(kind: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may be: one, or the members of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [] if get_origin(kind) is dict else [model for part in get_args(kind) for model in models(part)]


def tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("name")
    return str(field.default) if field else ""


def shown(value: Any) -> str:
    """A value as params.yaml would spell it, shortened."""
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
