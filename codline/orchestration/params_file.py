"""Edits params.yaml: presets and overrides are written, comments kept, once all of it is known to be valid."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core import params_errors
from codline.core.errors import BY_EXIT_CODE, CodlineError, UserError
from codline.core.files import atomic_write
from codline.orchestration import presets
from codline.runtime import state_directory

PARAMS = Path("params.yaml")


def update_params(changes: dict[str, Any], preset: str | None = None) -> None:
    """Write a preset and then `changes` (by dotted key) into params.yaml. An invalid result is not written."""
    yaml = YAML()
    yaml.width = 200
    document = yaml.load(PARAMS.read_text(encoding="utf-8"))
    before = json.dumps(document)
    if preset is not None:
        replace_values(document, presets.resolve(preset))
    for key, value in changes.items():
        set_value(document, key, value)
    candidate = state_directory.state_root() / "params.yaml"
    candidate.parent.mkdir(parents=True, exist_ok=True)
    with candidate.open("w", encoding="utf-8") as file:
        yaml.dump(document, file)
    try:
        check_params(candidate)
    except UserError as error:
        raise error if preset is None else UserError(f"with the preset {preset}, {error}") from error
    if json.dumps(document) != before:
        with atomic_write(PARAMS) as part:
            shutil.copyfile(candidate, part)


def replace_values(document: Any, values: dict[str, Any]) -> None:
    """Make the document hold `values` and nothing else; what is equal keeps its spelling and comments."""
    for key in [key for key in document if key not in values]:
        del document[key]
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            replace_values(document[key], value)
        elif key not in document or json.dumps(document[key]) != json.dumps(value):
            document[key] = value


def set_value(document: Any, key: str, value: Any) -> None:
    """Set a dotted key. Another plug-in's `name` removes the parameters of the previous one."""
    *path, last = key.split(".")
    for name in path:
        if not isinstance(document, dict) or name not in document:
            near = params_errors.suggestion(name, list(document)) if isinstance(document, dict) else ""
            raise UserError(f"{key}: params.yaml has no {name!r}{near}")
        document = document[name]
    if not isinstance(document, dict):
        raise UserError(f"{key}: params.yaml has a plain value above {last!r}")
    if last == "name" and document.get("name") != value:
        document.clear()
    document[last] = value


def check_params(*paths: Path, note: str = "params") -> None:
    """Have every stage check its section, in another process, since orchestration does not load torch.

    Takes seconds, so the digest of what passed is kept in a note.
    """
    code = [*sorted(Path("codline").rglob("*.py")), *sorted(Path("stages").glob("*.py"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in [*paths, *code])).hexdigest()
    if state_directory.read_note("checked", note) == {"digest": digest}:
        return
    command = [sys.executable, "-m", "stages", "check_params", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["params.yaml could not be checked"]
        raise BY_EXIT_CODE.get(done.returncode, CodlineError)(lines[-1].removeprefix("codline: "))
    state_directory.write_note("checked", note, {"digest": digest})
