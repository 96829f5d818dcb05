"""What DVC is doing in this directory, from the files in which it notes its commands."""

import json
import os
from pathlib import Path
from typing import Any

from codline.core.errors import BusyError
from codline.core.locks import file_lock
from codline.runtime.dvc_repair import REPOSITORY_LOCK, RUNNING
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import is_alive


def refuse_other_commands() -> None:
    """Fail at once if another DVC command works in this directory, instead of waiting for it or disturbing it."""
    others = {command["pid"]: command["cmd"] for command in writers().values() if command["pid"] != os.getpid()}
    for pid, command in others.items():
        name = " ".join([Path(command.partition(" ")[0]).name, *command.split()[1:]])
        raise BusyError(f"`{name}` (process {pid}) is running stages in this directory; wait for it or stop it")
    if REPOSITORY_LOCK.exists():
        busy = "another DVC command (process {owner}) holds .dvc/tmp/lock; wait for it or stop it"
        with file_lock(REPOSITORY_LOCK, busy=busy):
            pass


def running_stages(pipeline: Pipeline) -> dict[str, int]:
    """{stage: process id of the campaign or DVC command that runs it}"""
    processes = {path: command["pid"] for path, command in writers().items()}
    outputs = {name: str((pipeline.root / pipeline.outputs(name)[0]).resolve()) for name in pipeline.stage_names()}
    return {name: processes[path] for name, path in outputs.items() if path in processes}


def writers() -> dict[str, dict[str, Any]]:
    """{file: the command that is writing it}, without those of processes that were killed."""
    try:
        noted = json.loads(RUNNING.read_text(encoding="utf-8"))["write"]
    except (OSError, ValueError, KeyError):  # none has run yet, or it is being written
        return {}
    return {path: command for path, command in noted.items() if is_alive(command["pid"])}
