"""Checks dvc.lock against the workspace, so that MLflow is never given results of other parameters."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.core.errors import DataError, UserError
from codline.core.files import file_md5
from codline.runtime.directory_hash import listing_md5
from codline.runtime.pipeline import Pipeline, dotted_value


class LockStatus:
    """Which results were made from the parameters and files that are here now, according to dvc.lock.

    A stage without an entry counts as current: it was run by hand, without DVC. With `recorded_only` it is not logged,
    because while DVC runs it may be a stage whose outputs are still being written.
    """

    def __init__(self, pipeline: Pipeline, recorded_only: bool = False) -> None:
        self.pipeline, self.recorded_only = pipeline, recorded_only
        self.stages = read_lock(pipeline.root / "dvc.lock")
        self.producers: dict[str, tuple[str, str | None]] = {
            out["path"]: (name, out.get("md5")) for name, stage in self.stages.items() for out in stage["outs"]
        }
        self.current: dict[str, bool] = {}

    def may_log(self, name: str, files: tuple[Path, ...]) -> bool:
        """Whether these files, results of the stage `name`, are current and as they were recorded."""
        if self.recorded_only and name not in self.stages:
            return False
        return self.is_current(name) and all(self.is_unchanged(path) for path in files)

    def is_current(self, name: str) -> bool:
        if name not in self.current:
            entry = self.stages.get(name, {})
            params, dependencies = entry.get("params", {}).get("params.yaml", {}), entry.get("deps", [])
            self.current[name] = all(self.is_param_current(*item) for item in params.items()) and all(
                self.is_dependency_current(dependency["path"], dependency.get("md5")) for dependency in dependencies
            )
        return self.current[name]

    def is_param_current(self, key: str, value: Any) -> bool:
        try:
            return bool(dotted_value(self.pipeline.params, key) == value)
        except UserError:  # params.yaml has no such key now
            return False

    def is_dependency_current(self, path: str, md5: str | None) -> bool:
        """Compare with what its producer wrote last; code and other files that no stage writes are not checked."""
        if inside := [output for output in self.producers if output.startswith(f"{path}/")]:
            producers = [self.producers[output][0] for output in inside]
            members = {output.removeprefix(f"{path}/"): self.producers[output][1] or "" for output in inside}
            return md5 == listing_md5(members) and all(self.is_current(name) for name in producers)
        if path not in self.producers:
            return True
        producer, recorded = self.producers[path]
        return md5 == recorded and self.is_current(producer)

    def is_unchanged(self, path: Path) -> bool:
        """False for a file that was replaced since: by a stage that DVC has not recorded yet, or by hand."""
        name = path.relative_to(self.pipeline.root).as_posix()
        if name not in self.producers:
            return True
        return file_md5(path) == self.producers[name][1]


def read_lock(path: Path) -> dict[str, Any]:
    """The stages in a dvc.lock; none if it does not exist.

    DVC rewrites the file in place: while it does, and after a kill, the end is missing, so that the text may not be
    YAML or its last entry is incomplete. Such an entry is left out: outs come last, after the params and deps.
    """
    if not path.exists():
        return {}
    try:
        stages = YAML(typ="safe").load(path.read_text(encoding="utf-8"))["stages"]
        return {name: entry for name, entry in stages.items() if is_complete(entry)}
    except (OSError, UnicodeDecodeError, YAMLError, TypeError, KeyError, AttributeError) as error:
        sentence = f"{path}: not a complete file: truncated by a kill? `codline run` restores the last complete one"
        raise DataError(sentence) from error


def is_complete(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("outs")) and all("path" in out for out in entry["outs"])
