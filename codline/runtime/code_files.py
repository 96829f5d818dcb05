"""The project's code files: their hashes when this process started, and which of them it has imported."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from codline.core.files import file_sha256

ROOT = Path(__file__).parents[2]
CODE = ("codline", "stages")


@cache
def code_at_start() -> dict[str, str]:
    """{file: hash} of all code, relative to the repository. Call it before the code is imported; it takes 3 ms."""
    return {path: file_sha256(ROOT / path) for path in code_files()}


def code_files() -> Iterator[str]:
    for package in CODE:
        for directory, folders, names in os.walk(ROOT / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from (os.path.relpath(Path(directory, name), ROOT) for name in names)


def code_version() -> list[tuple[int, int]]:
    """Changes whenever a file of code does. Takes a millisecond: sizes and times are compared, not contents."""
    return [(status.st_size, status.st_mtime_ns) for status in map(os.stat, absolute_paths())]


@cache
def absolute_paths() -> list[str]:
    return [str(ROOT / path) for path in code_at_start()]


def code_digest(path: str) -> str | None:
    try:
        return file_sha256(ROOT / path)
    except OSError:
        return None


def imported_files() -> list[str]:
    """The modules of codline and stages that this process has imported, relative to the repository."""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    packages = tuple(f"{ROOT / package}/" for package in CODE)
    return [os.path.relpath(file, ROOT) for file in sorted(files) if file.startswith(packages)]
