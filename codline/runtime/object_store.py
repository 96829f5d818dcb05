"""DVC's cache of outputs, read byte by byte: DVC itself trusts sizes and times, and files that are read-only."""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from codline.core.files import atomic_write, file_md5, file_version, remove, sync
from codline.runtime.directory_hash import DIRECTORY, Members, directory_listing, listing_md5

READ_ONLY = 0o444


class ObjectInfo(NamedTuple):
    """What dvc.lock records of a file or directory."""

    md5: str
    size: int
    nfiles: int | None = None  # of a directory

    def as_dict(self) -> dict[str, str | int]:
        return {key: value for key, value in self._asdict().items() if value is not None}


class ObjectStore:
    """Objects by hash. The object of a directory is a list of its files, with a hash that ends with .dir."""

    def __init__(self, root: Path) -> None:
        self.root = root  # .dvc/cache/files/md5
        self.verified: dict[str, str] = {}  # {hash: version of the object that was found whole}
        self.unsynced: set[Path] = set()  # directories with names that may not be durable yet

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

    def has(self, md5: str) -> bool:
        """Whether the object and the members of a directory are here and whole; damaged ones are removed.

        Reads an object once per process, unless it has changed since.
        """
        path = self.path(md5)
        version = file_version(str(path))
        if self.verified.get(md5) != version or version == "absent":
            if version == "absent" or self.remove_damaged(md5):
                return False
            self.verified[md5] = version
        return all(self.has(member) for member in self.members(md5).values())

    def add(self, path: Path) -> ObjectInfo:
        """Add an output whose content is durable. The file becomes a read-only link to its object.

        The names of new objects are durable after sync_names().
        """
        if path.is_dir():
            files = {each.relative_to(path).as_posix(): self.add(each) for each in path.rglob("*") if each.is_file()}
            members = {name: info.md5 for name, info in files.items()}
            md5 = listing_md5(members)
            if not self.has(md5):
                with atomic_write(self.path(md5)) as part:
                    part.write_bytes(directory_listing(members))
                    part.chmod(READ_ONLY)
            return ObjectInfo(md5, sum(info.size for info in files.values()), len(files))
        md5 = file_md5(path)
        target = self.path(md5)
        if self.has(md5):
            link(target, path)
        else:
            path.chmod(READ_ONLY)
            target.parent.mkdir(parents=True, exist_ok=True)
            link(path, target)
            self.verified[md5] = file_version(str(target))
        self.unsynced |= {target.parent, self.root}
        return ObjectInfo(md5, path.stat().st_size)

    def restore(self, md5: str, path: Path) -> None:
        """Make an output a link to its object, which is here and whole."""
        if not md5.endswith(DIRECTORY):
            path.parent.mkdir(parents=True, exist_ok=True)
            link(self.path(md5), path)
            return
        part = path.with_name(f".{path.name}.part")
        remove(part)
        for name, member in self.members(md5).items():
            self.restore(member, part / name)
        remove(path)
        part.replace(path)

    def sync_names(self) -> None:
        """Make the names of the objects that were added durable."""
        for directory in self.unsynced:
            sync(directory)
        self.unsynced.clear()


def link(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`; a copy where the file system has none, or between two of them."""
    if target.exists() and target.samefile(source):
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
        part.chmod(READ_ONLY)
        sync(part)
    part.replace(target)
