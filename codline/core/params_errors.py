"""Turns pydantic's validation errors into one sentence: which key, what was found, what was expected."""

import difflib
from datetime import date
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

# Expected values by pydantic's error type; the fields are those of the error's context.
EXPECTATIONS = {
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
    "invalid_key": "a text",
    "value_error": "{error}",
}


def error_sentence(error: ErrorDetails, model: type[BaseModel], *location: str) -> str:
    """`location` is the place of the validated value in its file."""
    keys, parent, expected_type = resolve_location(model, error["loc"])
    key, members = ".".join([*location, *keys]), member_models(expected_type)
    names, found = [plugin_name(member) for member in members], format_value(error["input"])
    match error["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key{suggestion(keys[-1], list(parent.model_fields) if parent else [])}"
        case "missing":
            return f"{key}: missing"
        case "union_tag_not_found":
            return f"{key}.name: missing; expected one of {', '.join(sorted(names))}"
        case "union_tag_invalid":
            unknown = error["ctx"]["tag"]
            family = keys[-2].removesuffix("s") if keys[-1].isdecimal() else keys[-1]  # objectives.0, strategy
            return f"{key}.name: unknown {family} {unknown!r}{suggestion(unknown, names)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            fields = ["name"] if len(members) > 1 else [field for each in members for field in each.model_fields]
            return f"{key}: found {found}, expected keys beneath it" + (f", such as {fields[0]}" if fields else "")
        case kind if kind in EXPECTATIONS:
            return f"{key}: found {found}, expected {EXPECTATIONS[kind].format(**error.get('ctx', {}))}"
    return f"{key}: found {found}, expected {error['msg'].removeprefix('Input should be ')}"


def resolve_location(kind: Any, location: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel] | None, Any]:
    """Follow pydantic's error location from the type `kind`.

    Returns the keys as they are written in the file, the model that the last key belongs to, and the type that is
    expected there. Where a value may be one of several models, pydantic's location also names the model: in a list of
    plug-ins, that name replaces the index.
    """
    keys: list[str] = []
    parent: type[BaseModel] | None = None
    for part in location:
        if get_origin(kind) is list:
            keys.append(str(part))
            kind = get_args(kind)[0]
            continue
        members = member_models(kind)
        if len(members) > 1:
            kind = next((member for member in members if plugin_name(member) == part), None)
            keys = [*keys[:-1], str(part)] if keys[-1].isdecimal() else keys
            continue
        if part == "[key]":  # pydantic's, after the key that is not as expected
            continue
        keys.append(str(part))
        parent = members[0] if members else None
        if parent is not None:
            kind = parent.model_fields[str(part)].annotation if part in parent.model_fields else None
        else:
            kind = get_args(kind)[1] if get_origin(kind) is dict else None
    return keys, parent, kind


def member_models(kind: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may have: one, or the members of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [] if get_origin(kind) is dict else [model for part in get_args(kind) for model in member_models(part)]


def plugin_name(model: type[BaseModel]) -> str:
    """The default of the model's field `name`, which identifies a plug-in in params.yaml."""
    field = model.model_fields.get("name")
    return str(field.default) if field else ""


def format_value(value: Any) -> str:
    """A value as YAML writes it, shortened to 60 characters."""
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool | date) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def suggestion(word: str, words: list[str]) -> str:
    """The end of a sentence about an unknown word: similar words, or else all that are allowed."""
    close = difflib.get_close_matches(word.lower().replace("-", "_"), words, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; expected {'one of ' if len(words) > 1 else ''}{', '.join(sorted(words)) or 'no keys here'}"
