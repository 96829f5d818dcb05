"""DVC's cache of past runs, robust against kills."""

from pathlib import Path
from typing import Any

from dvc.stage import PipelineStage
from dvc.stage.cache import StageCache, _get_stage_hash


class RunCache(StageCache):  # type: ignore[misc]
    """DVC creates the directory of an entry, writes the entry under a temporary name, and renames it.

    A kill between mkdir and rename leaves an empty directory on which every later run fails. Here that is a cache miss.
    Nothing is removed, since another campaign of a study may be writing there; saving the run again fills it.
    """

    def _load(self, stage: PipelineStage) -> dict[str, Any] | None:
        key = _get_stage_hash(stage)
        entries = [path for path in Path(self._get_cache_dir(key)).glob("*") if path.suffix != ".tmp"]
        if not entries:
            return None
        newest = max(entries, key=lambda path: path.stat().st_mtime)
        entry: dict[str, Any] | None = self._load_cache(key, newest.name)
        return entry
