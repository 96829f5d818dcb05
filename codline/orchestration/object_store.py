"""DVC's cache of outputs, read byte by byte: DVC itself trusts sizes and times, and files that are read-only."""

import json
from pathlib import Path

from codline.core.files import file_md5, sync
from codline.runtime.recorded_outputs import DIRECTORY

Members = dict[str, str]  # {path in a directory: hash}


class ObjectStore:
    """Objects by hash. The object of a directory is a list of its files, with a hash that ends with .dir."""

    def __init__(self, root: Path) -> None:
        self.root = root  # .dvc/cache/files/md5

    def path(self, md5: str) -> Path:
        return self.root / md5[:2] / md5[2:]

    def is_whole(self, md5: str) -> bool:
        return file_md5(self.path(md5)) == md5.removesuffix(DIRECTORY)

    def members(self, md5: str) -> Members:
        """Of a directory whose object is whole; empty for a file, and for a directory without an object."""
        if not md5.endswith(DIRECTORY) or not self.path(md5).exists() or not self.is_whole(md5):
            return {}
        return {entry["relpath"]: entry["md5"] for entry in json.loads(self.path(md5).read_bytes())}

    def remove_damaged(self, md5: str) -> bool:
        """Remove the object, and the members of a directory, where they are damaged; returns whether any was."""
        damaged = [each for each in (md5, *self.members(md5).values()) if self.is_damaged(each)]
        for each in damaged:
            self.path(each).unlink(missing_ok=True)
        return bool(damaged)

    def is_damaged(self, md5: str) -> bool:
        try:
            return not self.is_whole(md5)
        except FileNotFoundError:
            return False

    def sync(self, hashes: list[str]) -> None:
        """Make these objects, and the members of directories, durable, with their names."""
        paths = [self.path(each) for md5 in hashes for each in (md5, *self.members(md5).values())]
        for path in {*paths, *(path.parent for path in paths), self.root}:
            sync(path)


def directory_listing(members: Members) -> bytes:
    """The object that DVC writes for a directory of these files."""
    entries = [{"md5": md5, "relpath": path} for path, md5 in sorted(members.items())]
    return json.dumps(entries).encode()
