"""dvc.lock, as DVC would write it: entry by entry, whole at every instant, and in the campaign's order."""

import logging
import shutil
from pathlib import Path
from typing import Any

from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from dvc.stage import PipelineStage
from dvc.stage.serialize import to_lockfile
from dvc.utils.serialize import dumps_yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from voluptuous import Invalid

from codline.core.files import whole
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline

LOCK = Path("dvc.lock")
HEAD = "schema: '2.0'\nstages:\n"


def record(stage: PipelineStage, **options: Any) -> PipelineStage | None:
    """Let DVC run a stage if it must, and write down what came of it; DVC has locked its repository meanwhile.

    DVC itself would parse and write all of dvc.lock for each stage, a second long, and in place: a kill then leaves a stump.
    """
    ran: PipelineStage | None = stage.reproduce(**options)
    if ran is not None:
        put(LOCK, spliced(LOCK.read_text(encoding="utf-8") if LOCK.exists() else HEAD, to_lockfile(stage)))
        stage.repo.scm_context.track_file(str(LOCK))
    return ran


def spliced(text: str, entry: dict[str, Any]) -> str:
    """The text of a dvc.lock with one stage's entry in it: in the old one's place, or last. Its name is indented by two spaces, all below it deeper."""
    _, *lines = dumps_yaml({"stages": entry}).splitlines(keepends=True)
    old = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(old) if line == lines[0]), len(old))
    last = next((i for i, line in enumerate(old) if i > first and not line.startswith("   ")), len(old))
    return "".join(old[:first] + lines + old[last:])


def put(path: Path, text: str) -> None:
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")
    with whole(backup()) as part:
        part.write_text(text, encoding="utf-8")


def backup() -> Path:
    return state_directory.root() / "dvc.lock"


def heal() -> None:
    """Put the last whole dvc.lock back where a kill cut off DVC's own writing."""
    if LOCK.exists() and backup().exists() and not readable(LOCK):
        logging.getLogger("codline").warning("dvc.lock was cut off by a kill; the last whole one is put back")
        shutil.copyfile(backup(), LOCK)


def readable(path: Path) -> bool:
    """A stump may even be valid YAML."""
    try:
        return bool(COMPILED_LOCKFILE_SCHEMA(YAML(typ="safe").load(path.read_text(encoding="utf-8"))))
    except (YAMLError, Invalid, UnicodeDecodeError):
        return False


def tidied() -> None:
    """Leave of dvc.lock what is in the campaign, in its order, so that equal results are equal bytes.

    What stages of a longer campaign made is removed: report would show it. DVC's cache still has it, so it comes back without training.
    """
    lock = YAML(typ="safe").load(LOCK.read_text(encoding="utf-8"))
    kept = {name: lock["stages"][name] for name in Pipeline().names() if name in lock["stages"]}
    if list(kept) == list(lock["stages"]):
        return
    for path in outputs(lock["stages"]) - outputs(kept):
        path.unlink(missing_ok=True)
        if path.parent.exists() and not any(path.parent.iterdir()):
            path.parent.rmdir()
    put(LOCK, dumps_yaml({"schema": lock["schema"], "stages": kept}))


def outputs(stages: dict[str, Any]) -> set[Path]:
    return {Path(out["path"]) for stage in stages.values() for out in stage.get("outs", [])}
