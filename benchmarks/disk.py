"""What a cycle's outputs take on disk, in several forms, and whether COD ranks the pool the same by them: python -m benchmarks.disk"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.campaigns import CLASSES, Plan, two_cycles
from benchmarks.harness import Measured, parser, rounds, told_each
from codline.acquisition.discrepancy import discrepancy
from codline.data import output_store
from codline.data.output_store import softmax

CHUNK = 512  # images in a record batch, as many as are scored together
Form = tuple[Callable[[Path, np.ndarray, np.ndarray], None], Callable[[Path], np.ndarray]]


def arrow(kind: type[np.floating], compression: str | None) -> Form:
    def write(path: Path, ids: np.ndarray, logits: np.ndarray) -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(logits.astype(kind).reshape(-1)), logits.shape[1])
        table = pa.table([pa.array(ids), column], names=["id", "logits"])
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=CHUNK)

    def read(path: Path) -> np.ndarray:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            found: np.ndarray = (
                table["logits"].combine_chunks().values.to_numpy().reshape(len(table), -1).astype(np.float32)
            )
            return found

    return write, read


def parquet() -> Form:
    """As score writes them: the bytes of a number apart."""

    def write(path: Path, ids: np.ndarray, logits: np.ndarray) -> None:
        with output_store.writing(path, logits.shape[1:], "c1") as keep:
            keep(ids, logits)

    def read(path: Path) -> np.ndarray:
        rows = output_store.opened(path, (CLASSES,))
        return rows.take(rows.ids)

    return write, read


FORMS = {
    "Arrow, float32, mapped": arrow(np.float32, None),
    "Arrow, float32, lz4": arrow(np.float32, "lz4"),
    "Arrow, float32, zstd": arrow(np.float32, "zstd"),
    "Parquet, float32, bytes apart, zstd (outputs.parquet)": parquet(),
    "Arrow, float16, mapped": arrow(np.float16, None),
    "Arrow, float16, zstd": arrow(np.float16, "zstd"),
}


def ranked(ids: np.ndarray, now: np.ndarray, before: np.ndarray) -> np.ndarray:
    return ids[np.lexsort((ids, -discrepancy(softmax(now), softmax(before))))]


def forms(plan: Plan, repeats: int) -> Iterator[list[Measured]]:
    with two_cycles(plan) as workspace:
        workspace.run("score", "c2")
        before, after = (
            output_store.opened(workspace.path("score", "outputs", cycle), (CLASSES,)) for cycle in ("c1", "c2")
        )
        ids = after.ids
        last, now = before.take(ids), after.take(ids)
        exact, case, rows = ranked(ids, now, last), f"{len(ids):,} images, {CLASSES} classes", list[Measured]()
        for name, (write, read) in FORMS.items():
            path, seconds = workspace.root / "outputs", list[float]()
            write(path, ids, last)
            for _ in range(repeats + 1):
                began = time.process_time()
                found = read(path)
                seconds.append(time.process_time() - began)
            order = ranked(ids, now, found)
            moved = (
                "the same ranking"
                if np.array_equal(order, exact)
                else f"another ranking; {len(np.setdiff1d(order[: plan.budget], exact[: plan.budget]))} other ids in the query"
            )
            size = path.stat().st_size
            rows.append(
                Measured(
                    case,
                    name,
                    statistics.median(seconds),
                    size / last.nbytes,
                    note=f"{size / len(ids):.1f} bytes an image; {moved}",
                )
            )
        yield rows


def main(words: list[str] | None = None) -> None:
    asked = parser(__doc__).parse_args(words)
    plan = Plan(1_000, start=100, budget=50, epochs=1) if asked.quick else Plan(20_000)
    told_each(
        "A cycle's outputs: CPU seconds to read them, size beside bare float32 logits",
        forms(plan, rounds(asked)),
        asked.json,
    )


if __name__ == "__main__":
    main()
