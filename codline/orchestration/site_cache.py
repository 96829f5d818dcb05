"""DVC's site cache (hashes of files that it has seen, unpickled when read), in the workspace and for its owner alone.

DVC's default, /var/tmp/dvc, is writable by every user of the machine, so another one could run code at `dvc checkout`.
DVC takes a relative `core.site_cache_dir` from the current directory, which may be any, so the path is absolute, in the
untracked .dvc/config.local. Every codline command checks it: a clone that was moved or copied has that of another one.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

LOCATION = ".dvc/tmp/site-cache"
OWNER_ONLY, WRITABLE_BY_OTHERS = 0o700, 0o022


def configure_site_cache(root: Path) -> None:
    """Create the site cache of this workspace and make it DVC's, unless the user has configured another directory.

    Nothing happens outside of a DVC repository.
    """
    if not (root / ".dvc/config").exists():
        return
    directory, configured = root.resolve() / LOCATION, configured_directory(root)
    if configured is not None and not configured.endswith(f"/{LOCATION}"):
        return
    with contextlib.suppress(OSError):  # on a disk that is full or not writable, DVC itself says so
        create_private_directory(directory)
        if configured != str(directory):
            from dvc.config import Config  # takes 0.3 s

            with Config(str(root / ".dvc")).edit("local") as config:
                config["core"]["site_cache_dir"] = str(directory)


def create_private_directory(directory: Path) -> None:
    """Others must not have been able to write into it: DVC, if it has to create it, lets everyone."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if directory.exists():
        status = directory.stat()
        if status.st_mode & WRITABLE_BY_OTHERS or status.st_uid != os.getuid():
            shutil.rmtree(directory)
    directory.mkdir(mode=OWNER_ONLY, exist_ok=True)


def configured_directory(root: Path) -> str | None:
    """As .dvc/config.local has it, without importing DVC's parser."""
    try:
        text = (root / ".dvc/config.local").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    match = re.search(r"^\s*site_cache_dir\s*=\s*(.*?)\s*$", text, re.MULTILINE)
    return match[1].strip("\"'") if match else None
