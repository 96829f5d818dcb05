"""The files of the image store: Arrow files of bounded size, memory-mapped when an image of them is first read."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.data import array_store, tables
from codline.data.array_store import MappedBatches, equal_groups
from codline.data.image_manifest import ImageManifest, ShardRecord, describe_shard

SHARD_BYTES = 2**28  # a shard ends with the record batch that reaches this size
MAX_OPEN_SHARDS = 256  # each takes a file descriptor, of which processes have 1,024 by default

Shard = TypeVar("Shard", bound=MappedBatches)
LocateShard = Callable[[ShardRecord], Path]


class ShardWriter:
    """Writes record batches of ascending ids to files in a directory, as many as they need.

    The file that is being written is closed with `files`.
    """

    def __init__(self, directory: Path, schema: pa.Schema, files: ExitStack) -> None:
        self.directory, self.schema, self.files = directory, schema, files
        self.shards: list[ShardRecord] = []
        self.writer: pa.RecordBatchFileWriter | None = None

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            self.path = self.directory / f"{len(self.shards):05}.arrow"
            self.writer = self.files.enter_context(tables.arrow_writer(self.path, self.schema))
            self.first_id, self.rows, self.size = batch["id"][0].as_py(), 0, 0
        self.writer.write_batch(batch)
        self.last_id = batch["id"][-1].as_py()
        self.rows, self.size = self.rows + batch.num_rows, self.size + batch.nbytes
        if self.size >= SHARD_BYTES:
            self.finish_shard()

    def finish_shard(self) -> None:
        if self.writer is not None:
            self.files.close()
            self.shards.append(describe_shard(self.path, self.rows, self.first_id, self.last_id))
            self.writer = None


class ImageShards(Generic[Shard]):
    """Finds images by id, opens the shards that hold them, and bounds what is mapped."""

    def __init__(self, manifest: ImageManifest, locate: LocateShard, open_file: Callable[[Path], Shard]) -> None:
        self.records, self.locate, self.open_file = manifest.shards, locate, open_file
        self.first_ids = np.array([record.first_id for record in manifest.shards])
        self.mapped: dict[int, Shard] = {}
        self.resident_bytes = 0

    def shard(self, number: int) -> Shard:
        if number not in self.mapped:
            record = self.records[number]
            shard = self.open_file(self.locate(record))
            if len(shard) != record.rows:
                raise DataError(f"{shard.path}: has {len(shard):,} images, expected {record.rows:,} by its manifest")
            if len(self.mapped) == MAX_OPEN_SHARDS:
                del self.mapped[next(iter(self.mapped))]
            self.mapped[number] = shard
        return self.mapped[number]

    def split(self, ids: np.ndarray) -> Iterator[tuple[Shard, np.ndarray]]:
        """Yield (shard, places): the positions of the ids that are in it, if they are anywhere."""
        numbers = np.maximum(np.searchsorted(self.first_ids, ids, side="right") - 1, 0)
        for number, places in equal_groups(numbers):
            yield self.shard(number), places

    @property
    def ids(self) -> np.ndarray:
        """All ids; a new array of eight bytes per id. Opens all shards."""
        return np.concatenate([self.shard(number).ids for number in range(len(self.records))])

    def count_read_bytes(self, size: int) -> None:
        """Count what was read through the memory maps, and release their pages once they are many."""
        self.resident_bytes += size
        if self.resident_bytes > array_store.MAX_RESIDENT_BYTES:
            for shard in self.mapped.values():
                shard.release_pages()
            self.resident_bytes = 0
