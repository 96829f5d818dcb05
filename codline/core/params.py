"""params.yaml as typed, frozen values. A wrong key or value raises UserError with one sentence."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from codline.core.errors import UserError
from codline.core.params_errors import error_sentence, format_value, suggestion


class Section(BaseModel):
    """Base class of sections and plug-ins: immutable, without type coercion, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Compute(Section):
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    # Results are bit-identical only for the same number of threads, since it decides how reductions are split.
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    deterministic: bool = True
    # Vector instructions that the CPU may use.
    instructions: Literal["native", "avx2", "baseline"] = "avx2"
    # Of matrix products and convolutions; auto: bfloat16 where the device supports it in hardware.
    precision: Literal["float32", "bfloat16", "auto"] = "float32"


class CycleLink(Section):
    """A line of `cycles` or `queries`: the cycle that this one follows."""

    prev: str


class QueryLink(CycleLink):
    """A line of `queries`: also the file with the answers, which follows from the annotator."""

    answers: str | None = None


Cycles = dict[str, CycleLink]
Queries = dict[str, QueryLink]


class Chain(Section):
    cycles: Cycles
    queries: Queries


class Inputs(Section):
    inputs: dict[Annotated[str, Field(pattern="^[a-z0-9-]+$")], str]


SHARED_SECTIONS = ("seed", "compute", "inputs", "cycles", "queries")
ORACLE = "data/oracle.parquet"  # the answers of the simulated annotator
CYCLE_NAME = "[A-Za-z0-9_][A-Za-z0-9_-]{,63}"  # becomes part of commands and paths in dvc.yaml
MAX_CYCLES = 1000  # a larger number is taken for a mistake
MAX_NUMBER = 2**31 - 1

S = TypeVar("S", bound=BaseModel)


def is_amount(value: Any) -> bool:
    is_share = isinstance(value, float) and 0 < value < 1
    return is_share or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def check_amount(value: Any) -> Any:
    if not is_amount(value):
        raise ValueError("a share of the pool (more than 0, less than 1) or a number of images (1, 2, ...)")
    return value


def check_amount_or_none(value: Any) -> Any:
    if value != 0 and not is_amount(value):
        raise ValueError("a share (more than 0, less than 1), a number of images (1, 2, ...) or 0")
    return value


def check_amount_or_all(value: Any) -> Any:
    if value != "all" and not is_amount(value):
        raise ValueError("a share of the pool (more than 0, less than 1), a number of images (1, 2, ...) or all")
    return value


# A share of the pool (0.05) or a number of images (72).
Amount = Annotated[int | float, BeforeValidator(check_amount)]
# The same, or 0.
AmountOrNone = Annotated[int | float, BeforeValidator(check_amount_or_none)]
# The same, or "all": every image of the pool that has a label.
AmountOrAll = Annotated[int | float | Literal["all"], BeforeValidator(check_amount_or_all)]


class SelectBudget(BaseModel):
    """The part of select's section that other stages may read."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    budget: Amount


def parse_yaml(text: str) -> Any:
    """The value of a YAML document; ValueError says in one line why it has none."""
    try:
        if "*" in text and any(isinstance(event, AliasEvent) for event in YAML(typ="safe", pure=True).parse(text)):
            raise ValueError("found an alias (*), expected plain values")  # a few lines of them have gigabytes
        return YAML(typ="safe", pure=True).load(text)
    except RecursionError as error:
        raise ValueError("too many levels") from error
    except YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        place = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{place}{' '.join(str(problem).split())}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = parse_yaml(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path}: not found; run this from the root of a codline project") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: found {format_value(raw)}, expected sections such as seed and train")
    return raw


def plugins_by_name(value: Any) -> dict[str, dict[str, Any]]:
    """The members of a list of plug-ins, such as train.objectives, by name: dotted keys contain it, not an index."""
    members = value if isinstance(value, list) else []
    return {str(member["name"]): member for member in members if isinstance(member, dict) and "name" in member}


def check_section_names(raw: dict[str, Any], names: list[str]) -> None:
    for key in raw:
        if key not in names:
            raise UserError(f"params.yaml: {key}: unknown section{suggestion(str(key), names)}")


def parse_section(raw: dict[str, Any], name: str, model: type[S]) -> S:
    return validate({} if raw.get(name) is None else raw[name], model, name)


def validate(value: Any, model: type[S], *location: str) -> S:
    """Parse `value` as `model`; `location` is its place in params.yaml, for the error sentence."""
    refuse_large_numbers(value, *location)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise UserError("params.yaml: " + error_sentence(error.errors()[0], model, *location)) from error


def refuse_large_numbers(value: Any, *location: str) -> None:
    """What no count can be ends in an overflow hours later."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        refuse_large_numbers(item, *location, str(key))
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        found = f"params.yaml: {'.'.join(location)}: found {format_value(value)}"
        raise UserError(f"{found}, expected at most {MAX_NUMBER}")


def parse_seed(raw: dict[str, Any]) -> int:
    value = raw.get("seed")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        expected = "a whole number that is not negative, below 2**63"
        raise UserError(f"params.yaml: seed: found {format_value(value)}, expected {expected}")
    return value


def parse_inputs(raw: dict[str, Any]) -> dict[str, str]:
    """{name: path} of the files and folders that the dataset is read from."""
    return validate({"inputs": raw.get("inputs") or {}}, Inputs).inputs


def check_inputs(found: dict[str, str], expected: dict[str, str]) -> None:
    """The section follows from prepare.dataset; it exists because dvc.yaml cannot compute it."""
    if found != expected:
        shown = [", ".join(f"{name}: {path}" for name, path in some.items()) or "none" for some in (found, expected)]
        difference = f"found {shown[0]}, expected {shown[1]}, as in prepare.dataset"
        raise UserError(f"params.yaml: inputs: {difference}; `codline run` writes it")


def parse_cycles(raw: dict[str, Any]) -> Cycles:
    """Check that the cycles form a chain init -> c1 -> c2 ..., and that `queries` repeats all but the last."""
    chain = parse_chain(raw)
    previous = "init"
    for name, link in chain.cycles.items():
        if name == "init" or not re.fullmatch(CYCLE_NAME, name):
            found = f"params.yaml: cycles: found the name {format_value(name)}"
            raise UserError(f"{found}, expected at most 64 letters, digits, - and _, such as c1, and not init")
        if link.prev != previous:
            found = f"params.yaml: cycles.{name}.prev: found {link.prev!r}, expected {previous!r}"
            raise UserError(f"{found}: each cycle follows the one above it")
        previous = name
    if not chain.cycles:
        raise UserError("params.yaml: cycles: found none, expected at least c1: {prev: init}")
    if len(chain.cycles) > MAX_CYCLES:
        raise UserError(f"params.yaml: cycles: found {len(chain.cycles)}, expected at most {MAX_CYCLES}")
    expected = list(chain.cycles)[:-1]
    if list(chain.queries) != expected:
        names = [", ".join(names) or "none" for names in (chain.queries, expected)]
        found = f"params.yaml: queries: found {names[0]}"
        raise UserError(f"{found}, expected the lines of cycles without the last: {names[1]}")
    for name, link in chain.queries.items():
        if link.prev != chain.cycles[name].prev:
            found = f"params.yaml: queries.{name}.prev: found {link.prev!r}"
            raise UserError(f"{found}, expected {chain.cycles[name].prev!r} as in cycles")
    return chain.cycles


def parse_chain(raw: dict[str, Any]) -> Chain:
    return validate({key: {} if raw.get(key) is None else raw[key] for key in ("cycles", "queries")}, Chain)


def cycle_chain(count: int) -> dict[str, Any]:
    """`cycles` and `queries` of params.yaml for a simulated campaign of `count` cycles."""
    if not 1 <= count <= MAX_CYCLES:
        raise UserError(f"cycles: found {count}, expected 1 to {MAX_CYCLES}")
    links = {f"c{i}": {"prev": f"c{i - 1}" if i > 1 else "init"} for i in range(1, count + 1)}
    return {"cycles": links, "queries": query_links(links, lambda _: ORACLE)}


def query_links(cycles: dict[str, dict[str, str]], answers_file: Callable[[str], str]) -> dict[str, dict[str, str]]:
    """`queries` of params.yaml: all cycles but the last, each with the file of its answers."""
    return {name: link | {"answers": answers_file(name)} for name, link in list(cycles.items())[:-1]}
