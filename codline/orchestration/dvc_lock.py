"""Writes dvc.lock as DVC would, but one entry at a time, atomically, and in the campaign's order."""

from pathlib import Path
from typing import Any

from dvc.stage import PipelineStage
from dvc.stage.serialize import to_lockfile
from dvc.utils.serialize import dumps_yaml
from ruamel.yaml import YAML

from codline.core.files import write_text
from codline.runtime.dvc_repair import back_up_lock, backup_path
from codline.runtime.object_store import ObjectStore
from codline.runtime.pipeline import Pipeline

LOCK = Path("dvc.lock")
HEAD = "schema: '2.0'\nstages:\n"


def reproduce_and_record(stage: PipelineStage, objects: ObjectStore) -> bool:
    """Let DVC run the stage if it must, and record the result; the caller holds DVC's repository lock.

    Outputs in DVC's cache are durable before dvc.lock names them. DVC itself would parse and rewrite all of dvc.lock
    for each stage, which takes ten times as long as replacing one entry, and would do so in place, so that a kill
    leaves a truncated file.
    """
    if stage.reproduce() is None:
        return False
    objects.sync([out.hash_info.value for out in stage.outs if out.use_cache])
    text = LOCK.read_text(encoding="utf-8") if LOCK.exists() else HEAD
    write_lock(replace_entry(text, to_lockfile(stage)))
    return True


def replace_entry(text: str, entry: dict[str, Any]) -> str:
    """The text of a dvc.lock with the entry of one stage replaced, or appended. Names of stages are indented by two."""
    _, *lines = dumps_yaml({"stages": entry}).splitlines(keepends=True)
    old = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(old) if line == lines[0]), len(old))
    last = next((i for i, line in enumerate(old) if i > first and not line.startswith("   ")), len(old))
    return "".join(old[:first] + lines + old[last:])


def write_lock(text: str) -> None:
    write_text(LOCK, text)
    back_up_lock()


def restore(content: bytes) -> None:
    """Put back an earlier dvc.lock; empty: there was none."""
    if content:
        write_lock(content.decode())
    else:
        LOCK.unlink(missing_ok=True)
        backup_path().unlink(missing_ok=True)


def tidy() -> None:
    """Keep only the campaign's stages, in its order, so that equal results give equal bytes."""
    keep_stages(Pipeline().stage_names())


def keep_stages(names: list[str]) -> None:
    """Keep the entries of these stages, in this order, and remove the outputs of all others.

    Otherwise report would show them, and DVC their metrics. DVC's cache still has them, so that going back to the
    parameters that they were made with restores them without training.
    """
    if not LOCK.exists():
        return
    lock = YAML(typ="safe").load(LOCK.read_text(encoding="utf-8"))
    stages = {name: lock["stages"][name] for name in names if name in lock["stages"]}
    if list(stages) == list(lock["stages"]):
        return
    for path in output_paths(lock["stages"]) - output_paths(stages):
        path.unlink(missing_ok=True)
        if path.parent.exists() and not any(path.parent.iterdir()):
            path.parent.rmdir()
    write_lock(dumps_yaml({"schema": lock["schema"], "stages": stages}))


def output_paths(stages: dict[str, Any]) -> set[Path]:
    return {Path(out["path"]) for stage in stages.values() for out in stage.get("outs", [])}
