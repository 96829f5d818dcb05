"""Entries of dvc.lock and of DVC's run cache: the bytes and keys that DVC gives them, without importing DVC.

Serialising a dvc.lock of three cycles with ruamel.yaml takes 100 ms. The parts of an entry are therefore serialised one
by one and remembered: the points of a study share commands, code and most parameters.
"""

import hashlib
import io
import json
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

Entry = dict[str, Any]  # cmd, deps, params and outs, in this order
HEAD = "schema: '2.0'\nstages:\n"
SIZES = ("size", "nfiles")  # not part of a key; DVC leaves out every key of this name, also in parameters
PLAIN_PATH = re.compile(r"[A-Za-z][\w.-]*/[\w./-]{1,50}")  # YAML needs no quotes for it
PLAIN_MD5 = re.compile(r"(?=[0-9a-f]*[a-df])[0-9a-f]{32}(\.dir)?")  # one of digits and `e` alone would be a number


def without_sizes(value: Any) -> Any:
    if isinstance(value, list):
        return [without_sizes(each) for each in value]
    if isinstance(value, dict):
        return {key: without_sizes(each) for key, each in value.items() if key not in SIZES}
    return value


def entry_name(entry: Entry) -> str:
    """The name of an entry in the run cache: the hash of its content."""
    return hashlib.sha256(json.dumps(without_sizes(entry), sort_keys=True).encode()).hexdigest()


def run_key(entry: Entry) -> str:
    """The key of a run: the hash of command, dependencies, parameters and names of outputs."""
    return entry_name(entry | {"outs": [out["path"] for out in entry["outs"]]})


def read_entry(runs: Path, key: str) -> Entry | None:
    """The newest entry of a key in the run cache `runs`. One that is damaged is removed: its name is its hash."""
    entries = [path for path in (runs / key[:2] / key).glob("*") if path.suffix != ".tmp"]
    for path in sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)[:1]:
        try:
            entry: Entry = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
            if entry_name(entry) == path.name:
                return entry
        except (UnicodeDecodeError, YAMLError, TypeError, AttributeError):
            pass
        path.unlink(missing_ok=True)
    return None


def write_entry(runs: Path, key: str, entry: Entry) -> None:
    """In a directory that is then renamed to the key, or in the one that another output of this run has made."""
    path = runs / key[:2] / key / entry_name(entry)
    if path.exists():
        return
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent.parent) as folder:
        part = Path(folder, "entry") / path.name
        part.parent.mkdir()
        part.write_text("".join(line[4:] for line in entry_lines(entry)), encoding="utf-8")
        try:
            part.parent.rename(path.parent)  # succeeds if there is none, or an empty one
        except OSError:
            part.rename(path)


def lock_text(entries: dict[str, Entry]) -> str:
    """The bytes of a dvc.lock with these stages."""
    return HEAD + "".join(line for name, entry in entries.items() for line in (name_line(name), *entry_lines(entry)))


@lru_cache(4096)
def name_line(name: str) -> str:
    return dump({"stages": {name: {"cmd": ""}}})[1]


def entry_lines(entry: Entry) -> list[str]:
    """The lines of an entry, indented by four."""
    parts = [command_lines(entry["cmd"])]
    for kind, content in entry.items():
        if kind in ("deps", "outs"):
            parts += [f"    {kind}:\n", *(file_lines(**file) for file in content)]
        elif kind == "params":
            parts += ["    params:\n"]
            for file, values in content.items():
                parts += [f"      {file}:\n", *(param_lines(key, json.dumps(value)) for key, value in values.items())]
    return "".join(parts).splitlines(keepends=True)


@lru_cache(4096)
def command_lines(command: str) -> str:
    return "".join(dump({"stages": {"x": {"cmd": command}}})[2:])


@lru_cache(4096)
def param_lines(key: str, value: str) -> str:
    return "".join(dump({"stages": {"x": {"params": {"params.yaml": {key: json.loads(value)}}}}})[4:])


def file_lines(path: str, md5: str, **others: str | int) -> str:
    info = {"path": path, "hash": others.pop("hash"), "md5": md5} | others
    if not PLAIN_PATH.fullmatch(path) or not PLAIN_MD5.fullmatch(md5):
        return "".join(dump({"stages": {"x": {"outs": [info]}}})[3:])
    first, *rest = (f"      {key}: {value}\n" for key, value in info.items())
    return "".join([f"    - {first[6:]}", *rest])


def dump(value: Any) -> list[str]:
    """As DVC does."""
    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump(value, text)
    return text.getvalue().splitlines(keepends=True)
