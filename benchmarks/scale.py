"""How the process of a stage scales with the pool: python -m benchmarks.scale [--large]

Three parts: rows through driver and writer, computed by a trivial model in worker processes; the driver alone, whose
workers do nothing; and select on a file of scores. Elapsed seconds, and memory of the stage's process. The first part
imports torch, as score does; the others do not.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.growth import measure_growth
from benchmarks.harness import Measurement, ProcessMeasurement, argument_parser, report_each, run_in_subprocess
from benchmarks.stand_in import chunk_slices, configure_nothing, no_work
from codline.core.files import write_json
from codline.data import output_store, tables
from codline.engine.local_workers import compute_in_order
from stages.select import Params, select

STAND_IN_ROWS = 1000  # of a chunk of the driver alone
BUDGET = 2500


def schedule_chunks(rows: int, workers: int) -> None:
    """Ids are made chunk by chunk: an array of all of them would hide the driver's own memory."""
    chunks = (np.arange(chunk.start, chunk.stop) for chunk in chunk_slices(rows, STAND_IN_ROWS))
    with closing(compute_in_order(workers, configure_nothing, no_work, chunks)) as results:
        for _ in results:
            pass


def select_rows(rows: int, folder: str) -> None:
    files = {name: Path(folder, name) for name in ("dataset", "pool", "outputs", "scores", "query")}
    select(Params(budget=min(BUDGET, rows)), seed=0, cycle="c1", **files)


def write_inputs_of_select(rows: int, folder: Path) -> None:
    """Scores and outputs of a pool, of which select needs the number of rows."""
    rng = np.random.default_rng(0)
    with (
        pq.ParquetWriter(folder / "scores", tables.SCORES) as scores,
        pq.ParquetWriter(folder / "pool", tables.POOL) as pool,
    ):
        for chunk in chunk_slices(rows, tables.ROW_GROUP_ROWS):
            ids = np.arange(chunk.start, chunk.stop)
            scores.write_table(pa.table([ids, rng.random(len(ids))], schema=tables.SCORES))
            pool.write_table(pa.table([ids, np.full(len(ids), "")], schema=tables.POOL))
    with output_store.output_writer(folder / "outputs", (2,), "c1") as write:
        write(np.arange(1), np.zeros((1, 2), np.float32))
    info = {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]}
    write_json(folder / "dataset", info)


def measure_select(rows: int) -> ProcessMeasurement:
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        write_inputs_of_select(rows, Path(folder))
        return run_in_subprocess(select_rows, rows, folder)


def measure_scale(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    sizes = [100, 1_000] if arguments.quick else [10**4, 10**5, 10**6]
    large, workers = arguments.large, arguments.workers
    from benchmarks.trivial_pass import score_rows  # here, because processes that import it hold torch

    def measure_pass(rows: int) -> ProcessMeasurement:
        return run_in_subprocess(score_rows, rows, workers)

    def measure_driver(rows: int) -> ProcessMeasurement:
        return run_in_subprocess(schedule_chunks, rows, workers)

    yield measure_growth("driver and writer", measure_pass, sizes + [10**7] * large)
    title = f"driver alone, chunks of {STAND_IN_ROWS}"
    yield measure_growth(title, measure_driver, sizes + [10**8] * large + [10**9] * arguments.largest)
    yield measure_growth(f"select, top {BUDGET:,}", measure_select, sizes + [10**7, 10**8] * large)


def main(argv: list[str] | None = None) -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    large = "also 10^7 rows through driver and writer, 10^8 through the driver alone, and 10^8 scores: some minutes"
    parser.add_argument("--large", action="store_true", help=large)
    parser.add_argument("--largest", action="store_true", help="also 10^9 rows through the driver alone")
    arguments = parser.parse_args(argv)
    title = "Scale: elapsed seconds, resident memory of the stage's process"
    report_each(title, measure_scale(arguments), arguments.json)


if __name__ == "__main__":
    main()
