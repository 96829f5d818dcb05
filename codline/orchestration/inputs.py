"""The files and folders that a dataset is read from: their manifests, and links to them in a study's worktrees."""

from pathlib import Path
from typing import Any

from codline.orchestration import dvc_lock
from codline.runtime.pipeline import Pipeline

DOWNLOADS = "raw"  # the directory of downloaded datasets; not tracked


def remove_other_manifests() -> None:
    """Remove manifests of inputs that are not in params.yaml: prepare depends on all that are there."""
    pipeline = Pipeline()
    dvc_lock.tidy()
    folder = pipeline.path("prepare", "manifests")
    folder.mkdir(parents=True, exist_ok=True)
    for manifest in folder.glob("*.parquet"):
        if manifest.stem not in pipeline.inputs:
            manifest.unlink()


def link_inputs(params: dict[str, Any], folder: Path) -> None:
    """Make relative paths of a params.yaml's dataset valid in another directory as well.

    The dataset may be another one than that of the section `inputs`, which is written when the campaign starts.
    """
    values = [value for key, value in params["prepare"]["dataset"].items() if key != "name"]
    texts = [each for value in values for each in (value if isinstance(value, list) else [value])]
    for path in {DOWNLOADS, *(params.get("inputs") or {}).values(), *(text for text in texts if isinstance(text, str))}:
        link = folder / path
        if path and not Path(path).is_absolute() and Path(path).exists() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(path).resolve())
