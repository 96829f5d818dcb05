"""Where a worker finds the images of a campaign: in its own files, or in the DVC remote."""

import os
from dataclasses import dataclass
from pathlib import Path

from codline.core.errors import DataError
from codline.data.image_manifest import ImageManifest, ShardRecord, read_manifest
from codline.data.image_store import CACHE_BYTES, ImageStore, open_shards
from codline.data.shard_cache import REMOTE, fetch_shard, path_in_remote


@dataclass(frozen=True)
class ImageLocation:
    """Sent to workers, which open it on whatever machine they run. The manifest says which images are meant."""

    directory: Path
    manifest: ImageManifest
    remote: str  # a directory or an s3:// address with the layout of a DVC remote; empty: there is none

    def open(self, cache: int = CACHE_BYTES) -> ImageStore:
        """Opens, and fetches, no shard before images in it are taken."""
        is_here = self.is_here()
        if not is_here and not self.remote:
            expected = f"run `dvc push {self.directory}` where they were prepared and set {REMOTE} to the DVC remote"
            raise DataError(f"{self.directory}: the images are not on this machine; share the directory, or {expected}")

        def locate(shard: ShardRecord) -> Path:
            path = self.directory / shard.name
            has_shard = is_here and (path.exists() or not self.remote)
            return path if has_shard else fetch_shard(self.remote, shard, path)

        return open_shards(self.manifest, locate, cache)

    def is_here(self) -> bool:
        """Whether the directory on this machine has these images; it may be that of another campaign."""
        try:
            return read_manifest(self.directory) == self.manifest
        except DataError:
            return False


def locate_images(directory: Path) -> ImageLocation:
    """For the stage: its images, and the remote that the environment names."""
    remote = os.environ.get(REMOTE, "")
    if remote:
        path_in_remote(remote)  # which refuses an address that cannot be right
    return ImageLocation(directory, read_manifest(directory), remote)
