"""DVC's memory of past runs, of which a kill leaves nothing that is in the way."""

from pathlib import Path
from typing import Any

from dvc.stage import PipelineStage
from dvc.stage.cache import StageCache, _get_stage_hash


class Memory(StageCache):  # type: ignore[misc]
    """DVC makes an entry's folder, writes the entry under another name, and renames it. Killed in between, it fails on that folder ever after.

    Here a folder without an entry is none, and nothing is removed: in a study another point may be just there. Saving again fills it.
    """

    def _load(self, stage: PipelineStage) -> dict[str, Any] | None:
        key = _get_stage_hash(stage)
        entries = [path for path in Path(self._get_cache_dir(key)).glob("*") if path.suffix != ".tmp"]
        if not entries:
            return None
        newest = max(entries, key=lambda path: path.stat().st_mtime)
        entry: dict[str, Any] | None = self._load_cache(key, newest.name)
        return entry
