"""Edits params.yaml: presets and overrides are written, comments kept, once all of it is known to be valid."""

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from codline.core import params, params_errors
from codline.core.errors import BY_EXIT_CODE, CodlineError, UserError
from codline.core.files import write_text
from codline.data.folder_walk import input_files
from codline.orchestration import presets
from codline.orchestration.people_defaults import annotator_name, people_defaults
from codline.runtime import state_directory

PARAMS = Path("params.yaml")


def params_changes(
    strategy: str | None, seed: int | None, cycles: int | None, overrides: dict[str, Any] | None
) -> dict[str, Any]:
    """Named arguments of a campaign and overrides as one set of dotted keys."""
    named = {"score.strategy.name": strategy, "seed": seed} | (params.cycle_chain(cycles) if cycles else {})
    return {key: value for key, value in named.items() if value is not None} | (overrides or {})


def update_params(changes: dict[str, Any], preset: str | None = None) -> None:
    """Write a preset, then `changes` (by dotted key), then the derived sections. An invalid result is not written."""
    yaml = params_yaml()
    params.read_yaml(PARAMS)  # refuses what is missing or no YAML with a sentence
    document = yaml.load(PARAMS.read_text(encoding="utf-8"))
    before = as_json(document)
    if preset is not None:
        replace_values(document, presets.resolve(preset))
    was_simulated = annotator_name(document) != "people"
    for key, value in changes.items():
        set_value(document, key, value)
    for key, value in people_defaults(document, was_simulated, list(changes)).items():
        set_value(document, key, value)
    try:
        derived = derived_sections(dump(yaml, document))
    except UserError as error:
        if preset is None:
            raise
        raise UserError(f"with the preset {preset}, {error}") from error
    replace_values(document, dict(document) | derived)
    check_inputs(document)
    if as_json(document) != before:
        write_text(PARAMS, dump(yaml, document))


def end_campaign_at(last: str, path: Path = PARAMS) -> list[str]:
    """Make this cycle the last one of a params.yaml; returns the cycles that are no longer in it."""
    yaml = params_yaml()
    document = yaml.load(path.read_text(encoding="utf-8"))
    names = list(document["cycles"])
    kept = names[: names.index(last) + 1]
    cycles, queries = (
        {name: dict(document[section][name]) for name in some}
        for section, some in (("cycles", kept), ("queries", kept[:-1]))
    )
    replace_values(document, dict(document) | {"cycles": cycles, "queries": queries})
    write_text(path, dump(yaml, document))
    return names[len(kept) :]


def params_yaml() -> YAML:
    """Reads and writes params.yaml, comments kept."""
    yaml = YAML()
    yaml.width = 200
    yaml.brace_single_entry_mapping_in_flow_sequence = True  # [{name: ll4al}], not [name: ll4al]
    return yaml


def dump(yaml: YAML, document: Any) -> str:
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def as_json(value: Any) -> str:
    """For comparisons, in which 1 is not 1.0 or true. YAML has dates, too."""
    return json.dumps(value, default=str)


def replace_values(document: Any, values: dict[str, Any]) -> None:
    """Make the document hold `values` and nothing else; what is equal keeps its spelling and comments."""
    for key in [key for key in document if key not in values]:
        del document[key]
    for key, value in values.items():
        if value and isinstance(value, dict) and is_block(document.get(key)):
            replace_values(document[key], value)
        elif key not in document or as_json(document[key]) != as_json(value):
            document[key] = in_one_line(value)


def is_block(node: Any) -> bool:
    """Whether a mapping has a line per key, and at least one: emptied, ruamel would write it as invalid YAML."""
    return isinstance(node, CommentedMap) and bool(node) and not node.fa.flow_style()


def set_value(document: Any, key: str, value: Any) -> None:
    """Set a dotted key, in which members of a list of plug-ins are found by name: train.objectives.ema.weight.

    Another plug-in's `name` removes the parameters of the previous one.
    """
    *path, last = key.split(".")
    for name in path:
        inner = document if isinstance(document, dict) else params.plugins_by_name(document)
        if name not in inner:
            near = params_errors.suggestion(name, list(inner)) if inner else ""
            raise UserError(f"{key}: params.yaml has no {name!r}{near}")
        document = inner[name]
    if not isinstance(document, dict):
        raise UserError(f"{key}: params.yaml has a plain value above {last!r}")
    if last == "name" and document.get("name") != value:
        document.clear()
    document[last] = in_one_line(value)


def in_one_line(value: Any) -> Any:
    """Mappings as params.yaml writes them: {name: cod, first_cycle: smallest}, unless they contain others; lists."""
    if isinstance(value, list):
        items = CommentedSeq(in_one_line(item) for item in value)
        items.fa.set_flow_style()
        return items
    if not isinstance(value, dict):
        return value
    mapping = CommentedMap({key: in_one_line(item) for key, item in value.items()})
    if not any(isinstance(item, dict) for item in value.values()):
        mapping.fa.set_flow_style()
    return mapping


def derived_sections(text: str) -> dict[str, Any]:
    """Check the text of a params.yaml; return the sections of it that follow from the others."""
    root = state_directory.state_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=root, prefix="params-", suffix=".yaml") as candidate:
        candidate.write(text)
        candidate.flush()
        derived: dict[str, Any] = json.loads(run_check("--derived", candidate.name))
    return derived


def check_inputs(raw: dict[str, Any]) -> None:
    """Refuse inputs that are missing, and folders that DVC cannot read (see codline.data.folder_walk)."""
    scan = raw.get("scan")
    follow_links = isinstance(scan, dict) and scan.get("links") == "follow"
    for path in map(Path, params.parse_inputs(raw).values()):
        input_files(path, follow_links)


def derived_of_files(*paths: Path) -> list[dict[str, Any]]:
    """Check some params.yaml; return the sections of each that follow from the others."""
    return [json.loads(line) for line in run_check("--derived", *map(str, paths)).splitlines()]


def with_sections(text: str, sections: dict[str, Any]) -> str:
    """The text of a params.yaml with these sections in place of its own; unchanged if it has them."""
    yaml = params_yaml()
    document = yaml.load(text)
    if all(as_json(document.get(name)) == as_json(section) for name, section in sections.items()):
        return text
    replace_values(document, dict(document) | sections)
    return dump(yaml, document)


def run_check(*arguments: str) -> str:
    """Have every stage check its section, in another process, since orchestration does not import plug-ins."""
    command = [sys.executable, "-m", "stages", "check_params", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["params.yaml could not be checked"]
        raise BY_EXIT_CODE.get(done.returncode, CodlineError)(lines[-1].removeprefix("codline: "))
    return done.stdout
