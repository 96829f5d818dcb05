"""Snapshot of what a stage reads, taken when it starts. If any of it changes while the stage runs, it is refused.

DVC hashes parameters, inputs and code after the command has ended. Without this check, an edit made while a stage runs
would put the new hashes into dvc.lock, next to a result of the old files.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.core import params
from codline.core.errors import DataError, UserError
from codline.core.files import file_version
from codline.core.params_errors import format_value
from codline.runtime import state_directory
from codline.runtime.code_files import CODE, code_at_start, code_digest, imported_files
from codline.runtime.pipeline import Pipeline, dotted_value

NOTE = "snapshot"  # kind of the note, see state_directory.note_path


@dataclass(frozen=True)
class Snapshot:
    stage: str
    params_file: str
    params: dict[str, Any]  # {dotted key: value} in params.yaml
    inputs: dict[str, str]  # {file or directory: its version, see file_version}
    code_paths: list[str]  # files and directories of code that dvc.yaml lists for the stage
    code: dict[str, str | None]  # {file below them: hash}, of Python files only imported ones; None: it did not exist
    params_version: str = ""  # of params_file, see file_version; empty: unknown

    def refuse_changes(self) -> None:
        change = self.changed_param() or self.changed_input() or self.changed_code()
        if change:
            self.refuse(change)

    def refuse_changed_inputs(self) -> None:
        """Takes microseconds, unless an input is a large directory."""
        if change := self.changed_input():
            self.refuse(change)

    def refuse(self, change: str) -> None:
        raise DataError(f"{change} while {self.stage} ran; its result is not recorded: run it again")

    def changed_param(self) -> str | None:
        if file_version(self.params_file) == self.params_version:  # takes microseconds, reading YAML 10 ms
            return None
        try:
            raw = params.read_yaml(Path(self.params_file))
        except UserError:  # not valid at the moment, for example because it is being edited
            return f"{self.params_file} changed"
        changes = (changed_value(key, before, value_at(raw, key)) for key, before in self.params.items())
        return next((f"{self.params_file}: {change}" for change in changes if change), None)

    def changed_input(self) -> str | None:
        return next((f"{path} changed" for path, before in self.inputs.items() if file_version(path) != before), None)

    def changed_code(self) -> str | None:
        return next((f"{path} changed" for path, before in self.code.items() if code_digest(path) != before), None)

    def with_imported_code(self) -> "Snapshot":
        """With the code that this process has imported by now."""
        if not self.code_paths:
            return self
        imported = [path for path in imported_files() if is_below(path, self.code_paths)]
        return replace(self, code=self.code | {path: code_at_start().get(path) for path in imported})

    def write_note(self) -> None:
        state_directory.write_note(NOTE, self.stage, asdict(self))


class KnownFiles(NamedTuple):
    """What a caller that has read dvc.yaml knows of a stage."""

    keys: set[str]  # of params.yaml
    dependencies: list[str]
    params_version: str = ""  # of params.yaml, from before it was read


_current: Snapshot | None = None  # of the stage that this process runs


def begin(
    stage: str,
    params_file: Path,
    raw: dict[str, Any],
    keys: set[str],
    inputs: list[Path],
    known: KnownFiles | None = None,
) -> None:
    """Take the snapshot of the stage that this process is about to run on `raw`, the content of `params_file`.

    `keys` and `inputs` are those of its signature; what dvc.yaml records besides them is added.
    """
    global _current
    recorded_keys, dependencies, params_version = known or KnownFiles(*recorded_by_dvc(stage, raw))
    code_paths = [path for path in dependencies if path.split("/")[0] in CODE]
    data = {*map(str, inputs), *dependencies}.difference(code_paths)
    _current = Snapshot(
        stage,
        str(params_file),
        params={key: value_at(raw, key) for key in sorted(keys | recorded_keys)},
        inputs={path: file_version(path) for path in sorted(data)},
        code_paths=code_paths,
        code={path: digest for path, digest in code_at_start().items() if is_read_as_data(path, code_paths)},
        params_version=params_version,
    )
    snapshot = _current.with_imported_code()
    if change := snapshot.changed_code():  # between start and import
        snapshot.refuse(change)
    snapshot.write_note()


def end() -> None:
    """Forget the snapshot: the process may run another stage."""
    global _current
    _current = None


def current() -> Snapshot | None:
    """That of the stage that this process runs."""
    return _current


def refuse_changes() -> None:
    """Refuse the stage of this process if anything that it depends on has changed since it started. Takes 10 ms."""
    if _current is not None:
        snapshot = _current.with_imported_code()
        snapshot.refuse_changes()
        snapshot.write_note()


def refuse_changed_inputs() -> None:
    """The same for inputs alone: before a checkpoint is written, so that none is computed from two versions of one."""
    if _current is not None:
        _current.refuse_changed_inputs()


def read_snapshot(stage: str) -> Snapshot | None:
    """What the last run of this stage depended on, from its note."""
    try:
        return Snapshot(**state_directory.read_note(NOTE, stage) or {})
    except TypeError:  # no note, or one of another version of codline
        return None


def is_read_as_data(path: str, code_paths: list[str]) -> bool:
    """For example a template: no import tells whether it was used."""
    return not path.endswith((".py", ".pyc")) and is_below(path, code_paths)


def is_below(path: str, roots: list[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def recorded_by_dvc(stage: str, raw: dict[str, Any]) -> tuple[set[str], list[str]]:
    """Keys of params.yaml, and dependencies, that dvc.yaml lists for a stage; none without a dvc.yaml."""
    pipeline = Pipeline()
    pipeline.params = raw
    try:
        pipeline.stages = YAML(typ="safe").load(Path("dvc.yaml"))["stages"]  # takes a sixth of params.read_yaml
        return pipeline.recorded(stage)
    except (OSError, UserError, YAMLError, KeyError):  # another pipeline, or a stage that is run by hand
        return set(), []


def value_at(raw: dict[str, Any], key: str) -> Any:
    try:
        return dotted_value(raw, key)
    except UserError:
        return None


def changed_value(key: str, before: Any, now: Any) -> str | None:
    """The first value in which the two differ, as the beginning of a sentence."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [*before, *(name for name in now if name not in before)]
        changes = (changed_value(f"{key}.{name}", before.get(name), now.get(name)) for name in names)
        return next((change for change in changes if change), None)
    same = before == now and type(before) is type(now)
    return None if same else f"{key} changed from {format_value(before)} to {format_value(now)}"
