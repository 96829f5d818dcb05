"""The hash that DVC gives to an output; a directory has that of the list of its files, with .dir at the end."""

import hashlib
import json
from pathlib import Path

from codline.core.files import file_md5

DIRECTORY = ".dir"
Members = dict[str, str]  # {path in a directory: hash}


def output_md5(path: Path) -> str:
    """Of a file, or of a directory, all of whose files are read."""
    return listing_md5(directory_members(path)) if path.is_dir() else file_md5(path)


def directory_members(directory: Path) -> Members:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): file_md5(path) for path in files}


def listing_md5(members: Members) -> str:
    return hashlib.md5(directory_listing(members)).hexdigest() + DIRECTORY


def directory_listing(members: Members) -> bytes:
    """The object that DVC writes for a directory of these files."""
    entries = [{"md5": md5, "relpath": path} for path, md5 in sorted(members.items())]
    return json.dumps(entries).encode()
