"""Size and reading time of a cycle's outputs in several file formats, and whether COD ranks the pool the same by them.

python -m benchmarks.disk
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.campaigns import CLASSES, CampaignSize, campaign_at_second_score
from benchmarks.harness import Measurement, argument_parser, counted_rounds, report_each
from codline.acquisition.discrepancy import discrepancy
from codline.data import output_store
from codline.data.output_store import open_output_store, softmax
from codline.evaluation.rank_statistics import descending_order

CHUNK = 512  # images in a record batch, as many as are scored together
Format = tuple[Callable[[Path, np.ndarray, np.ndarray], None], Callable[[Path], np.ndarray]]  # write, read


def arrow(dtype: type[np.floating], compression: str | None) -> Format:
    def write(path: Path, ids: np.ndarray, logits: np.ndarray) -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(logits.astype(dtype).reshape(-1)), logits.shape[1])
        table = pa.table([pa.array(ids), column], names=["id", "logits"])
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=CHUNK)

    def read(path: Path) -> np.ndarray:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            values: np.ndarray = table["logits"].combine_chunks().values.to_numpy()
            return values.reshape(len(table), -1).astype(np.float32)

    return write, read


def parquet() -> Format:
    """The format of outputs.parquet."""

    def write(path: Path, ids: np.ndarray, logits: np.ndarray) -> None:
        with output_store.output_writer(path, logits.shape[1:], "c1") as write_rows:
            write_rows(ids, logits)

    def read(path: Path) -> np.ndarray:
        store = open_output_store(path, (CLASSES,))
        return store.take(store.ids)

    return write, read


FORMATS = {
    "Arrow, float32, mapped": arrow(np.float32, None),
    "Arrow, float32, lz4": arrow(np.float32, "lz4"),
    "Arrow, float32, zstd": arrow(np.float32, "zstd"),
    "Parquet, float32, byte-stream split, zstd (outputs.parquet)": parquet(),
    "Arrow, float16, mapped": arrow(np.float16, None),
    "Arrow, float16, zstd": arrow(np.float16, "zstd"),
}


def rank_by_cod(ids: np.ndarray, logits: np.ndarray, previous: np.ndarray) -> np.ndarray:
    ranking: np.ndarray = ids[descending_order(discrepancy(softmax(logits), softmax(previous)), ids)]
    return ranking


def measure_formats(size: CampaignSize, rounds: int) -> Iterator[list[Measurement]]:
    with campaign_at_second_score(size) as workspace:
        workspace.run("score", "c2")
        paths = [workspace.path("score", "outputs", cycle) for cycle in ("c1", "c2")]
        stores = [open_output_store(path, (CLASSES,)) for path in paths]
        ids = stores[1].ids
        previous, logits = (store.take(ids) for store in stores)
        exact, path = rank_by_cod(ids, logits, previous), workspace.root / "outputs"
        rows = list[Measurement]()
        for name, (write, read) in FORMATS.items():
            write(path, ids, previous)
            seconds = list[float]()
            for _ in range(rounds + 1):
                began = time.process_time()
                stored = read(path)
                seconds.append(time.process_time() - began)
            order = rank_by_cod(ids, logits, stored)
            different = len(np.setdiff1d(order[: size.budget], exact[: size.budget]))
            same = np.array_equal(order, exact)
            ranking = "same ranking" if same else f"different ranking; {different} different ids in the query"
            file_bytes = path.stat().st_size
            note = f"{file_bytes / len(ids):.1f} bytes per image; {ranking}"
            case, ratio = f"{len(ids):,} images, {CLASSES} classes", file_bytes / previous.nbytes
            rows.append(Measurement(case, name, statistics.median(seconds), ratio, note=note))
        yield rows


def main(argv: list[str] | None = None) -> None:
    arguments = argument_parser(__doc__).parse_args(argv)
    size = CampaignSize(1_000, start=100, budget=50, epochs=1) if arguments.quick else CampaignSize(20_000)
    title = "A cycle's outputs: CPU seconds to read them, size relative to bare float32 logits"
    report_each(title, measure_formats(size, counted_rounds(arguments)), arguments.json)


if __name__ == "__main__":
    main()
