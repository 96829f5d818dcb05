"""The directory a campaign runs in: who may use it, what params.yaml says, what DVC has done there."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException, ReproductionError
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.stage.exceptions import StageCmdFailedError
from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import (
    AGAIN,
    BY_EXIT_CODE,
    BusyError,
    CodlineError,
    DataError,
    InfrastructureError,
    Stopped,
    UserError,
)
from codline.core.files import whole
from codline.orchestration import dvc_lock, fork_server_client, presets
from codline.orchestration.run_cache import Memory
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import OWNER

PARAMS = Path("params.yaml")
logging.getLogger("dvc").setLevel(logging.WARNING)  # the tasks say what runs
_holders = 0  # flows of this process that hold the workspace: a campaign and the cycle inside it


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold the workspace for one campaign at a time; the kernel lets go of it when the process dies, however it dies."""
    global _holders
    path = state_directory.root() / "campaign.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if _holders == 0:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise BusyError(
                    f"another campaign (process {file.read().strip() or 'unknown'}) is running in this directory; wait for it or stop it"
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            heal()
            os.environ[OWNER] = str(os.getpid())
        _holders += 1
        try:
            yield
        finally:
            _holders -= 1
            if _holders == 0:
                fork_server_client.down()
                del os.environ[OWNER]


def heal() -> None:
    """Mend what a kill in the middle of DVC's own writing may have left."""
    dvc_lock.heal()
    register = Path(".dvc/tmp/rwlock")
    try:
        json.loads(register.read_text())
    except FileNotFoundError:
        pass
    except ValueError:
        register.unlink()


def changed(changes: dict[str, Any], preset: str | None = None) -> None:
    """Write a preset and then dotted changes into params.yaml, comments kept, once the whole is known to be valid; an invalid one changes nothing."""
    yaml = YAML()
    yaml.width = 200
    document = yaml.load(PARAMS.read_text(encoding="utf-8"))
    before = json.dumps(document)
    if preset is not None:
        become(document, presets.resolved(preset))
    for key, value in changes.items():
        put(document, key.split("."), value, key)
    candidate = state_directory.root() / "params.yaml"
    candidate.parent.mkdir(parents=True, exist_ok=True)
    with candidate.open("w", encoding="utf-8") as file:
        yaml.dump(document, file)
    try:
        checked(candidate)
    except UserError as error:
        raise error if preset is None else UserError(f"with the preset {preset}, {error}") from error
    if json.dumps(document) != before:
        with whole(PARAMS) as part:
            shutil.copyfile(candidate, part)


def become(document: Any, wanted: dict[str, Any]) -> None:
    """Make the document say what is wanted and nothing else; what is equal already stays as it is spelled."""
    for key in [key for key in document if key not in wanted]:
        del document[key]
    for key, value in wanted.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            become(document[key], value)
        elif key not in document or json.dumps(document[key]) != json.dumps(value):
            document[key] = value


def put(document: Any, path: list[str], value: Any, key: str) -> None:
    for name in path[:-1]:
        if not isinstance(document, dict) or name not in document:
            raise UserError(
                f"{key}: params.yaml has no {name!r}"
                + (params.near(name, list(document)) if isinstance(document, dict) else "")
            )
        document = document[name]
    if not isinstance(document, dict):
        raise UserError(f"{key}: params.yaml has a plain value above {path[-1]!r}")
    if path[-1] == "name" and document.get("name") != value:
        document.clear()  # another plug-in has other parameters
    document[path[-1]] = value


def checked(path: Path = PARAMS) -> None:
    """Have every stage check its section, in a process of its own: flows do not load torch. Seconds, so the last verdict is kept."""
    files = [path, *sorted(Path("codline").rglob("*.py")), *sorted(Path("stages").glob("*.py"))]
    facts = {"digest": hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()}
    if state_directory.read_note("checked", "params") == facts:
        return
    fork_server_client.up()
    done = subprocess.run([sys.executable, "-m", "stages", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        sentence = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "params.yaml could not be checked"
        raise BY_EXIT_CODE.get(done.returncode, CodlineError)(sentence.removeprefix("codline: "))
    state_directory.note("checked", "params", facts)


def reproduce(stage: str) -> bool:
    """Let DVC bring one stage up to date; say whether it had to run."""
    fork_server_client.up()
    # A thread of its own: in the main one DVC would ignore Ctrl-C as long as the stage runs, and a stage may miss it while it starts.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(reproduced, stage).result()


def reproduced(stage: str) -> bool:
    try:
        with Repo(_wait_for_lock=True) as repo:
            repo.stage_cache = Memory(repo)
            return bool(repo.reproduce(stage, single_item=True, repro_fn=dvc_lock.record))
    except ReproductionError as error:
        raise explained(stage, error.__cause__) from error
    except LockError as error:
        raise InfrastructureError(f"{stage}: another DVC command holds this repository") from error
    except DvcException as error:
        raise DataError(f"{stage}: {' '.join(str(error).split())}") from error


def explained(stage: str, cause: BaseException | None) -> CodlineError:
    """The stage's own sentence where it left one; otherwise it was killed from outside."""
    if isinstance(cause, LockError):
        return InfrastructureError(f"{stage}: another DVC command holds this repository")
    if not isinstance(cause, StageCmdFailedError):
        return DataError(f"{stage}: {' '.join(str(cause).split())}")
    note = state_directory.read_note("error", stage)
    if note is None and re.search(r"exited with (130|-2)$", str(cause)):  # hit by Ctrl-C before it could say so
        return Stopped(AGAIN)
    if note is None:
        return InfrastructureError(f"{stage}: the stage was killed or timed out ({cause})")
    return BY_EXIT_CODE.get(note["exit_code"], CodlineError)(f"{stage}: {note['sentence']}")


def stale() -> list[str]:
    """Stages of the campaign that DVC would run again."""
    if not dvc_lock.LOCK.exists():
        return Pipeline().names()
    held_by_another()
    heal()
    with Repo() as repo:
        return [name for name in repo.status() if name in set(Pipeline().names())]


def held_by_another() -> None:
    """Refuse at once where another DVC command holds the repository, rather than wait for it without a word."""
    path = Path(".dvc/tmp/lock")
    if not path.exists():
        return
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"another DVC command (process {file.read().strip() or 'unknown'}) holds .dvc/tmp/lock; wait for it or stop it"
            ) from error
