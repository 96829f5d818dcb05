"""Parameters that suit people: all labels that exist are used, and a query is spread over the pool."""

from pathlib import Path
from typing import Any

START = "all"
PICK = {"name": "power", "beta": 1.0}  # docs/log.md has the comparison of pickers
STRATEGIES = Path("codline/strategies")


def people_defaults(document: Any, was_simulated: bool, given: list[str]) -> dict[str, Any]:
    """Values of `prepare.start` and `select.pick` where people become the annotators, unless `given` has their keys."""
    if not was_simulated or annotator_name(document) != "people":
        return {}
    defaults: dict[str, Any] = {"prepare.start": START}
    if not selects_whole_queries(document["score"]["strategy"]["name"]):
        defaults["select.pick"] = PICK
    return {key: value for key, value in defaults.items() if not is_given(key, given)}


def annotator_name(document: Any) -> str:
    """Empty in a document that is not valid, which is refused later."""
    try:
        return str(document["annotate"]["annotator"]["name"])
    except (KeyError, TypeError):
        return ""


def is_given(key: str, given: list[str]) -> bool:
    return any(f"{key}.".startswith(f"{other}.") or other.startswith(f"{key}.") for other in given)


def selects_whole_queries(strategy: str) -> bool:
    """From the source of the plug-in, since importing strategies takes seconds; a test compares it with the classes."""
    path = STRATEGIES / f"{strategy}.py"
    bases = ("BatchStrategy", "GraphLearner", "AdversarialLearner")
    return path.is_file() and any(base in path.read_text(encoding="utf-8") for base in bases)
