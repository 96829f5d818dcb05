"""Compares every output that dvc.lock names with its recorded hash, in the workspace and in DVC's cache."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codline.core.files import atomic_write, remove
from codline.runtime.directory_hash import DIRECTORY, directory_listing, directory_members, listing_md5
from codline.runtime.object_store import ObjectStore
from codline.runtime.recorded_outputs import RecordedOutput

State = Literal["whole", "damaged", "absent"]
CHUNK_BYTES = 2**20
READ_ONLY = 0o444  # as DVC protects its objects


@dataclass(frozen=True)
class CheckedFile:
    """A file, or the list of a directory's files: in DVC's cache that is an object, in the workspace what is there."""

    stage: str
    path: Path
    md5: str
    in_workspace: State
    in_cache: State

    @property
    def is_listing(self) -> bool:
        return self.md5.endswith(DIRECTORY)

    @property
    def is_damaged(self) -> bool:
        return "damaged" in (self.in_workspace, self.in_cache)


class Verification:
    """Reads all bytes of outputs and of their objects in DVC's cache; `advance(bytes)` is called while it reads."""

    def __init__(self, objects: ObjectStore, advance: Callable[[int], None] = lambda _: None) -> None:
        self.objects, self.advance = objects, advance

    def check_outputs(self, outputs: Iterable[RecordedOutput]) -> Iterator[CheckedFile]:
        for output in outputs:
            if output.is_directory:
                yield from self.check_directory(output)
            else:
                yield self.check_file(output.stage, Path(output.path), output.md5)

    def check_file(self, stage: str, path: Path, md5: str) -> CheckedFile:
        return CheckedFile(stage, path, md5, self.state(path, md5), self.state(self.objects.path(md5), md5))

    def check_directory(self, output: RecordedOutput) -> Iterator[CheckedFile]:
        """The list of its files, and each of them. The workspace's list is needed only if DVC's cache has none."""
        path, md5 = Path(output.path), output.md5
        in_cache, members = self.state(self.objects.path(md5), md5), self.objects.members(md5)
        in_workspace: State = "absent"
        if in_cache != "whole" and (members := directory_members(path)):
            in_workspace = "whole" if listing_md5(members) == md5 else "damaged"
        yield CheckedFile(output.stage, path, md5, in_workspace, in_cache)
        if in_workspace != "damaged":
            for name, member_md5 in members.items():
                yield self.check_file(output.stage, path / name, member_md5)

    def state(self, path: Path, md5: str) -> State:
        digest = hashlib.md5()
        try:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    self.advance(len(chunk))
        except FileNotFoundError:
            return "absent"
        return "whole" if digest.hexdigest() == md5.removesuffix(DIRECTORY) else "damaged"


def repair(file: CheckedFile, objects: ObjectStore) -> str:
    """Restore a damaged file from its whole copy, or remove it; returns what was done, for the user."""
    cached = objects.path(file.md5)
    if file.in_cache == "whole":
        copy(cached, file.path)
        return "restored from DVC's cache"
    if file.in_workspace == "whole":
        if file.is_listing:
            write_bytes(cached, directory_listing(directory_members(file.path)))
        else:
            copy(file.path, cached)
        cached.chmod(READ_ONLY)
        return "restored in DVC's cache from the workspace"
    for path, state in ((file.path, file.in_workspace), (cached, file.in_cache)):
        if state == "damaged":
            remove(path)
    return "removed: no copy is whole"


def copy(source: Path, target: Path) -> None:
    with atomic_write(target) as part:
        shutil.copyfile(source, part)


def write_bytes(path: Path, data: bytes) -> None:
    with atomic_write(path) as part:
        part.write_bytes(data)


def total_bytes(outputs: Iterable[RecordedOutput], objects: ObjectStore) -> int:
    """How much there is to read."""
    total = 0
    for output in outputs:
        members = objects.members(output.md5)
        files = {Path(output.path) / name: md5 for name, md5 in members.items()} or {Path(output.path): output.md5}
        paths = [*files, *map(objects.path, files.values())]
        total += sum(path.stat().st_size for path in paths if path.is_file())
    return total
