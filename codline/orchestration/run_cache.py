"""DVC's cache of past runs, robust against kills, damaged files, and edits while a stage runs."""

from pathlib import Path
from typing import Any

from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.stage.cache import RunCacheNotFoundError, StageCache, _can_hash, _get_stage_hash
from dvc.stage.serialize import to_single_stage_lockfile

from codline.core.errors import DataError
from codline.core.files import remove
from codline.orchestration.remote_results import RemoteResults
from codline.runtime import stage_snapshot
from codline.runtime.lock_entries import read_entry, write_entry
from codline.runtime.object_store import ObjectStore


class RunCache(StageCache):  # type: ignore[misc]
    """Looks up past runs (`restore`) and adds new ones (`save`, which DVC calls once it has hashed everything).

    DVC creates the directory of an entry, writes the entry under a temporary name, and renames it. A kill between mkdir
    and rename leaves an empty directory on which every later run fails. Here that is a cache miss, and an entry gets
    its directory and its name at once. With `remote`, runs of other machines count as past runs.
    """

    def __init__(self, repo: Repo, remote: RemoteResults | None = None) -> None:
        super().__init__(repo)
        self.remote = remote
        self.objects = ObjectStore(Path(repo.cache.local.path))
        self.restored: dict[str, str] = {}  # {stage: hash of what its result was restored for}
        self.is_restoring = False

    def _load(self, stage: PipelineStage) -> dict[str, Any] | None:
        key, runs = _get_stage_hash(stage), Path(self.cache_dir)
        entry = read_entry(runs, key)
        if entry is None and self.remote is not None:
            self.remote.fetch_run(key)
            entry = read_entry(runs, key)
        return entry

    def restore(self, stage: PipelineStage, *arguments: Any, **options: Any) -> None:
        """Restore a past run, unless an output in DVC's cache is damaged: then it is removed and the stage runs."""
        self.restored.pop(stage.addressing, None)
        self.is_restoring = True
        try:
            super().restore(stage, *arguments, **options)
        finally:
            self.is_restoring = False
        self.restored[stage.addressing] = _get_stage_hash(stage)

    def _create_stage(self, cache: dict[str, Any], wdir: str | None = None) -> PipelineStage:
        """Called by `restore` with the past run, before DVC looks for its outputs."""
        past = super()._create_stage(cache, wdir)
        if not self.is_restoring:
            return past
        hashes = [out.hash_info.value for out in past.outs]
        is_damaged = any([self.objects.remove_damaged(md5) for md5 in hashes])
        if self.remote is not None:
            self.remote.fetch_objects(hashes)
            is_damaged = any([self.objects.remove_damaged(md5) for md5 in hashes])
        if is_damaged:
            raise RunCacheNotFoundError(past)
        return past

    def save(self, stage: PipelineStage) -> None:
        """Refuse a result whose parameters, inputs or code have changed while it was made: nothing is recorded."""
        try:
            self.refuse_changes(stage)
        except DataError:
            for out in stage.outs:
                remove(Path(out.fs_path))
            raise
        for out in stage.outs:  # DVC keeps an object that exists, be it damaged
            self.objects.remove_damaged(out.hash_info.value)
        if _can_hash(stage):
            write_entry(Path(self.cache_dir), _get_stage_hash(stage), to_single_stage_lockfile(stage))
        super().save(stage)  # finds the entry

    def send(self, stage: PipelineStage) -> None:
        """Send the recorded result of a stage to the remote, unless it has that run."""
        if self.remote is None or not _can_hash(stage):
            return
        key = _get_stage_hash(stage)
        if not self.remote.has_run(key):
            write_entry(Path(self.cache_dir), key, to_single_stage_lockfile(stage))
            self.remote.push(key, [out.hash_info.value for out in stage.outs])

    def refuse_changes(self, stage: PipelineStage) -> None:
        name = stage.addressing
        if name in self.restored:
            if self.restored[name] != _get_stage_hash(stage):
                raise DataError(f"a file or parameter changed while the result of {name} was restored; run it again")
        elif (snapshot := stage_snapshot.read_snapshot(name)) is not None:
            snapshot.refuse_changes()
