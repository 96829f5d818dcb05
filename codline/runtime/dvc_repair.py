"""Undoes what a kill leaves of files that DVC writes in place, and on which every later `dvc` command would fail.

Imports neither DVC nor anything slow: the fork server repairs as soon as the process that it belongs to has died.
"""

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from codline.core.errors import BusyError
from codline.core.files import atomic_write, write_text
from codline.core.locks import file_lock
from codline.runtime.directory_hash import DIRECTORY
from codline.runtime.recorded_outputs import LOCK
from codline.runtime.state_directory import state_root

DVC = Path(".dvc")
RUNNING = DVC / "tmp/rwlock"  # the files that running stages read and write, with the command that runs them
RUNNING_LOCK = DVC / "tmp/rwlock.lock"  # held by DVC while it writes that list
REPOSITORY_LOCK = DVC / "tmp/lock"  # held by a DVC command, except while it runs a stage


def repair() -> None:
    """Restore a truncated dvc.lock, and remove a truncated list of running commands and partial run cache entries.

    Does nothing while another DVC command holds the repository, and outside one.
    """
    if not RUNNING.parent.is_dir():
        return
    with contextlib.suppress(BusyError), file_lock(REPOSITORY_LOCK), file_lock(RUNNING_LOCK):
        restore_lock()
        remove_truncated_list()
        if not is_study_running():
            remove_partial_entries(DVC / "cache/runs")


def is_study_running() -> bool:
    """The points of a study write to the cache of this workspace, each under the locks of its own worktree."""
    for path in (state_root() / "studies").glob("*/lock"):
        try:
            with file_lock(path):
                pass
        except BusyError:
            return True
    return False


def backup_path() -> Path:
    return state_root() / LOCK.name


def back_up_lock() -> None:
    """Called while DVC runs a command, when it writes nothing. The backup is empty if there is no dvc.lock yet.

    Not durable: a kill loses no data.
    """
    content = LOCK.read_bytes() if LOCK.exists() else b""
    if not backup_path().exists() or backup_path().read_bytes() != content:
        with atomic_write(backup_path(), durable=False) as part:
            part.write_bytes(content)


def restore_lock() -> None:
    try:
        found, backup = LOCK.read_bytes(), backup_path().read_bytes()
    except FileNotFoundError:
        return
    if found and (found == backup or is_whole(found)):  # equal mostly, and compared fast
        return
    if backup and not is_whole(backup):
        return
    logging.getLogger("codline").warning("dvc.lock was truncated by a kill; restoring the last complete one")
    if backup:
        write_text(LOCK, backup.decode())
    else:
        LOCK.unlink()


def is_whole(content: bytes) -> bool:
    """Whether a dvc.lock ends where DVC ends it. A truncated one may still be valid YAML, and even fit DVC's schema."""
    try:
        stages = YAML(typ="safe").load(content.decode())["stages"]
        is_complete = all(stage["cmd"] for stage in stages.values())
        last: dict[str, Any] = list(stages.values())[-1]["outs"][-1]
        return is_complete and content.endswith(b"\n") and ("nfiles" if is_directory(last) else "size") in last
    except (UnicodeDecodeError, YAMLError, TypeError, KeyError, IndexError, AttributeError):
        return False


def is_directory(output: dict[str, Any]) -> bool:
    return str(output["md5"]).endswith(DIRECTORY)


def remove_truncated_list() -> None:
    """All commands in it have been killed, since DVC holds its lock while it writes."""
    with contextlib.suppress(FileNotFoundError):
        try:
            json.loads(RUNNING.read_bytes())
        except ValueError:
            RUNNING.unlink()


def remove_partial_entries(run_cache: Path) -> None:
    """DVC creates the directory of an entry, writes the entry under a temporary name, and renames it.

    A kill between mkdir and rename leaves a directory on which every later `dvc repro` of that stage fails. Flows write
    an entry in a temporary directory (*.part) of their own.
    """
    for directory in run_cache.glob("*/*.part"):
        shutil.rmtree(directory, ignore_errors=True)
    for directory in run_cache.glob("*/*"):
        for partial in directory.glob("*.tmp"):
            partial.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has entries
            directory.rmdir()
