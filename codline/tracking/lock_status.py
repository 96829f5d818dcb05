"""dvc.lock: which stages' files were made from the files and parameters that are here now. Logging others would show results under the wrong parameters."""

import hashlib
import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.runtime.pipeline import Pipeline


class Lock:
    """`ran` is the stage that has just run: DVC writes it into the lock only after the follower has ended."""

    def __init__(self, pipeline: Pipeline, ran: str | None = None) -> None:
        self.params = pipeline.params
        self.stages = read(pipeline.root / "dvc.lock")
        self.made = {
            out["path"]: (name, out.get("md5")) for name, stage in self.stages.items() for out in stage.get("outs", [])
        }
        self.known: dict[str, bool] = {} if ran is None else {ran: True}

    def vouches(self, name: str) -> bool:
        """A stage that DVC has not run is trusted: somebody ran it by hand, and the lock has nothing to say."""
        if name not in self.known:
            stage = self.stages.get(name, {})
            self.known[name] = self.same_params(stage) and all(self.current(dep) for dep in stage.get("deps", []))
        return self.known[name]

    def same_params(self, stage: dict[str, Any]) -> bool:
        return all(
            self.params.get(section) == value
            for section, value in stage.get("params", {}).get("params.yaml", {}).items()
        )

    def current(self, dep: dict[str, Any]) -> bool:
        """Is it what its maker made last? Code and other files that no stage makes are not our business."""
        inside = [path for path in self.made if path.startswith(f"{dep['path']}/")]
        if inside:
            return dep.get("md5") == self.folder(dep["path"], inside) and all(
                self.vouches(self.made[path][0]) for path in inside
            )
        maker, md5 = self.made.get(dep["path"], (None, None))
        return maker is None or (dep.get("md5") == md5 and self.vouches(maker))

    def folder(self, path: str, inside: list[str]) -> str:
        """The hash that DVC gives to a folder of these files."""
        entries = [{"md5": self.made[name][1], "relpath": name.removeprefix(f"{path}/")} for name in inside]
        return (
            hashlib.md5(json.dumps(sorted(entries, key=lambda entry: entry["relpath"])).encode()).hexdigest() + ".dir"
        )


def read(path: Path) -> dict[str, Any]:
    try:
        stages: dict[str, Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))["stages"]
    except (OSError, YAMLError, TypeError, KeyError):  # not there yet, or being written
        return {}
    return stages
