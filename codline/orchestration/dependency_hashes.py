"""Hashes of what the stages of a study's points depend on and no stage writes: code, and inputs of datasets."""

from pathlib import Path
from typing import Any

from dvc.repo import Repo
from dvc_data.hashfile.build import build

from codline.core.errors import DataError
from codline.core.files import file_version
from codline.runtime.code_files import CODE
from codline.runtime.pipeline import Pipeline

Info = dict[str, str | int]  # md5, size and, of a directory, nfiles, as in dvc.lock


class DependencyHashes:
    """Hashes by DVC, in the worktree of the committed code. Code is hashed once, an input again when it has changed."""

    def __init__(self, root: Path) -> None:
        self.root, self.repo = root, Repo(str(root))
        self.known: dict[str, tuple[str, Info]] = {}  # {path: its version and hash}

    def of_point(self, pipeline: Pipeline) -> dict[str, Info]:
        """{path: hash} of the dependencies that are not outputs, or directories of outputs, of another stage."""
        names = pipeline.stage_names()
        outputs = {path for name in names for path in pipeline.outputs(name)}
        folders = {str(parent) for path in outputs for parent in Path(path).parents}
        dependencies = {path for name in names for path in pipeline.recorded(name)[1]}
        return {path: self.of_path(path) for path in sorted(dependencies - outputs - folders)}

    def of_path(self, path: str) -> Info:
        version = "" if path.partition("/")[0] in CODE else file_version(str(self.root / path))
        if self.known.get(path, ("unknown",))[0] != version:
            self.known[path] = version, self.hash(path)
        return self.known[path][1]

    def hash(self, path: str) -> Info:
        absolute: Any = str((self.root / path).absolute())
        try:
            _, meta, obj = build(
                self.repo.cache.local, absolute, self.repo.fs, "md5", ignore=self.repo.dvcignore, dry_run=True
            )
        except FileNotFoundError as error:
            raise DataError(f"{path}: not found; dvc.yaml has it as a dependency") from error
        info = {"md5": obj.hash_info.value, "size": meta.size, "nfiles": meta.nfiles if meta.isdir else None}
        return {key: value for key, value in info.items() if value is not None}
