"""k-center, BADGE, BALD and the top of many scores against other libraries' and plain forms, on the same arrays: python -m benchmarks.selection"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import argparse
import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import (
    Contender,
    Measured,
    Missing,
    apart,
    arrays_peak,
    clock,
    compared,
    installed,
    parser,
    remarked,
    rounds,
    told_each,
)
from codline.acquisition.distances import Points, brought_up
from codline.acquisition.k_center import k_center
from codline.acquisition.learner_context import LearnerContext
from codline.acquisition.uncertainty import entropy, summed_up
from codline.core.files import write_json
from codline.data import output_store, tables
from codline.data.output_store import softmax
from codline.strategies.badge import Badge
from codline.strategies.bald import Bald
from codline.strategies.base import Known, Outputs, Pool, Whole
from stages.select import Params, select

BEARABLE = 200_000  # images x picks that small-text does in a minute
GROUP = 1 << 20  # rows of a Parquet row group
Cases = dict[str, dict[str, Contender]]


@contextlib.contextmanager
def peer(package: str) -> Iterator[None]:
    """Another library: its warnings are its own business, and where it is not installed, its row says so."""
    installed(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def features(count: int, width: int, clustered: bool, seed: int = 0) -> np.ndarray:
    """Clustered ones look like those of a network after its last ReLU; a single cloud has all distances nearly alike, which is hard for lazy evaluation."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, width), np.float32)
    if clustered:
        centres = 2 * rng.standard_normal((50, width), np.float32)
        rows = np.maximum(
            rows * rng.gamma(2, 0.5, (count, 1)).astype(np.float32) + centres[rng.integers(0, 50, count)], 0
        )
    return rows


def k_centers(count: int, width: int, budget: int, labeled: int, clustered: bool) -> dict[str, Contender]:
    rows = features(count + labeled, width, clustered)
    return {
        "codline": lambda: k_center(Points.of(rows), count, budget),
        "plain greedy": lambda: plain_greedy(rows, count, budget),
        "scikit-activeml": lambda: activeml_k_center(rows, count, budget),
        "small-text": lambda: small_text_k_center(rows, count, budget),
    }


def plain_greedy(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    """One product of the matrix with a vector for every pick, in single precision."""
    lengths, chosen = (rows * rows).sum(axis=1), list[int]()
    known = lengths[count:] - 2 * (rows[:count] @ rows[count:].T)  # the labelled images', all at once
    least = lengths[:count] + known.min(axis=1)
    for _ in range(budget):
        chosen.append(int(least.argmax()))
        least = np.minimum(least, lengths[:count] + lengths[chosen[-1]] - 2 * (rows[:count] @ rows[chosen[-1]]))
        least[chosen[-1]] = -1
    return np.array(chosen)


def activeml_k_center(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    with peer("scikit-activeml"):
        from skactiveml.pool import k_greedy_center

        labels = np.where(np.arange(len(rows)) < count, np.nan, 0)
        return np.asarray(k_greedy_center(rows, labels, batch_size=budget, random_state=0)[0])


def small_text_k_center(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    with peer("small-text"):
        if count * budget > BEARABLE:
            raise Missing("left out: it takes all distances anew for every pick")
        from small_text.query_strategies.coresets import greedy_coreset

        everyone = np.arange(len(rows))  # candidates first: else it takes the distances to other rows than it picked
        return np.asarray(greedy_coreset(rows, everyone[:count], everyone[count:], budget, distance_metric="euclidean"))


def same_picks(reference: np.ndarray, picks: np.ndarray) -> str:
    together = int((reference == picks).cumprod().sum())
    return (
        "identical picks"
        if together == len(picks)
        else f"{len(np.intersect1d(reference, picks))} of {len(picks)} the same; the first {together} in order"
    )


def whole(probs: np.ndarray, rows: np.ndarray) -> Whole:
    nothing = Known(np.empty(0, np.int64), np.empty(0, np.int32), rows[:0])
    bench = LearnerContext(lambda ids: ids, None, 0, lambda _done, _total: None)
    return Whole(np.arange(len(rows)), Outputs(np.log(probs), probs), rows, nothing, bench)


def badges(count: int, width: int, classes: int, budget: int) -> dict[str, Contender]:
    rows = features(count, width, clustered=True)
    probs = softmax(2 * np.random.default_rng(1).standard_normal((count, classes)))
    pool = whole(probs, rows)
    return {
        "codline": lambda: Badge().choose(pool, budget, np.random.default_rng(0)),
        "scikit-activeml": lambda: activeml_badge(probs, rows, budget),
    }


def activeml_badge(probs: np.ndarray, rows: np.ndarray, budget: int) -> np.ndarray:
    with peer("scikit-activeml"):
        from skactiveml.base import SkactivemlClassifier
        from skactiveml.pool import Badge as Theirs

        class Said(SkactivemlClassifier):  # type: ignore[misc]
            """A classifier that has answered already."""

            def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Said":  # noqa: ARG002
                return self

            def predict_proba(self, X: Any) -> np.ndarray:  # noqa: ARG002
                return probs

        missing = np.full(len(rows), np.nan)
        return np.asarray(
            Theirs(random_state=0).query(
                rows, missing, Said(classes=range(probs.shape[1])), fit_clf=False, batch_size=budget
            )
        )


def potential(count: int, width: int, classes: int) -> Callable[[Any, Any], str]:
    """Draws differ, but how far the pool is from them should not."""
    rows = features(count, width, clustered=True)
    probs = softmax(2 * np.random.default_rng(1).standard_normal((count, classes)))
    points = Points.of(probs - np.eye(classes)[probs.argmax(axis=1)], rows)

    def left(picks: np.ndarray) -> float:
        return float(brought_up(points, np.full(count, np.inf), picks).sum())

    return lambda reference, picks: f"distances left: {left(picks) / left(reference):.3f} of ours"


def balds(count: int, classes: int, passes: int) -> dict[str, Contender]:
    rng = np.random.default_rng(0)
    steady = rng.standard_normal((count, classes))

    def samples() -> Iterator[np.ndarray]:
        drawn = np.random.default_rng(1)
        for _ in range(passes):
            yield softmax(steady + drawn.standard_normal((1, classes)))

    said = Outputs(steady, softmax(steady))
    return {
        "codline": lambda: Bald(passes=passes).scores(Pool(np.arange(count), said, samples=samples()), rng),
        "baal": lambda: baal_bald(samples()),
        "numpy, stacked": lambda: stacked_bald(samples()),
    }


def baal_bald(samples: Iterator[np.ndarray]) -> np.ndarray:
    """All passes are there before the first is looked at, as after predict_on_dataset."""
    with peer("baal"):
        from baal.active.heuristics import BALD

        return np.asarray(BALD().get_uncertainties(np.stack([*samples], axis=-1)))


def stacked_bald(samples: Iterator[np.ndarray]) -> np.ndarray:
    probs_TNC = np.stack([*samples])
    scores: np.ndarray = entropy(probs_TNC.mean(axis=0)) - summed_up(probs_TNC)[1]
    return scores


def same_scores(reference: np.ndarray, scores: np.ndarray) -> str:
    return f"scores differ by {np.abs(reference - scores).max():.0e} at most"


def weighed(found: list[Measured], cases: Cases) -> list[Measured]:
    """With the peak of memory, from one more run of each of these."""
    peaks = [arrays_peak(cases[row.case][row.contender]) if row.seconds is not None else None for row in found]
    return [replace(row, memory=peak) for row, peak in zip(found, peaks, strict=True)]


def written(folder: Path, count: int) -> None:
    """What select finds, a row group at a time."""
    rng = np.random.default_rng(0)
    with (
        pq.ParquetWriter(folder / "scores.parquet", tables.SCORES) as scores,
        pq.ParquetWriter(folder / "pool.parquet", tables.POOL) as pool,
    ):
        for start in range(0, count, GROUP):
            ids = np.arange(start, min(start + GROUP, count))
            scores.write_table(pa.table([ids, rng.random(len(ids))], schema=tables.SCORES))
            hashes = np.frombuffer(rng.bytes(32 * len(ids)).hex().encode(), "S64").astype("U64")
            pool.write_table(pa.table([ids, hashes], schema=tables.POOL))
    write_json(
        folder / "dataset.json",
        {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]},
    )
    with output_store.writing(folder / "outputs.parquet", (2,), "c1"):
        pass


def top_by_codline(folder: Path, budget: int) -> list[int]:
    paths = {
        "dataset": "dataset.json",
        "pool": "pool.parquet",
        "outputs": "outputs.parquet",
        "scores": "scores.parquet",
        "query": "query.parquet",
    }
    select(Params(budget=budget), seed=0, cycle="c1", **{name: folder / file for name, file in paths.items()})
    return list(tables.read(folder / "query.parquet", tables.QUERY)["id"].to_pylist())


def top_by_numpy(folder: Path, budget: int) -> list[int]:
    table = pq.read_table(folder / "scores.parquet")
    order = np.argsort(-table["score"].to_numpy(), kind="stable")[:budget]
    return list(table["id"].to_numpy()[order].tolist())


def top_by_pyarrow(folder: Path, budget: int) -> list[int]:
    table = pq.read_table(folder / "scores.parquet")
    order = pc.select_k_unstable(table, budget, [("score", "descending"), ("id", "ascending")])
    return list(table["id"].take(order).to_pylist())


def top_by_stretches(folder: Path, budget: int) -> list[int]:
    """What it takes at least: of each stretch and the best so far, the best are kept."""
    ids, scores = np.empty(0, np.int64), np.empty(0)
    for batch in pq.ParquetFile(folder / "scores.parquet").iter_batches(GROUP):
        ids, scores = np.concatenate([ids, batch["id"].to_numpy()]), np.concatenate([scores, batch["score"].to_numpy()])
        if len(scores) > budget:
            least = np.partition(scores, len(scores) - budget)[len(scores) - budget]
            ids, scores = ids[scores >= least], scores[scores >= least]
    return list(ids[np.lexsort((ids, -scores))][:budget].tolist())


def tops(count: int, budget: int) -> list[Measured]:
    """Each once, from the file, in a process of its own, by the clock: memory is what is looked at."""
    ways = {
        "codline: select": top_by_codline,
        "numpy argsort": top_by_numpy,
        "pyarrow select_k": top_by_pyarrow,
        "by row groups": top_by_stretches,
    }
    case, found = f"top {budget:,} of {count:,} scores in a file", list[Measured]()
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        written(Path(folder), count)
        for name, act in ways.items():
            one = apart(act, Path(folder), budget)
            reference = found[0].seconds if found else one.seconds
            found.append(
                Measured(
                    case,
                    name,
                    one.seconds,
                    one.seconds / (reference or 1),
                    one.resident - one.before,
                    answer=np.array(one.answer),
                )
            )
    return remarked(found, same_picks)


def arguments() -> argparse.ArgumentParser:
    found = parser(__doc__, rounds=3)
    found.add_argument(
        "--large",
        action="store_true",
        help="also k-center of 100,000 x 512, 2,500 picks; BADGE of 100 classes on 20,000 images",
    )
    found.add_argument(
        "--scores", type=int, default=5_000_000, help="of which the top is taken; 100000000 needs 8 GB of disk"
    )
    found.add_argument("--only", choices=("k-center", "badge", "bald", "top"), help="one of the tables")
    return found


def center_cases(asked: argparse.Namespace) -> Cases:
    sizes = [
        (4_000, 256, 50, 500, True),
        (20_000, 256, 300, 20, True),
        (20_000, 256, 300, 500, True),
        (20_000, 256, 300, 500, False),
    ]
    if asked.quick:
        sizes = [(400, 16, 20, 50, True)]
    if asked.large:
        sizes.append((100_000, 512, 2_500, 500, True))
    return {
        f"k-center, {n:,} x {d}, {b:,} picks, {m} labelled, {'clustered' if clustered else 'one cloud'}": k_centers(
            n, d, b, m, clustered
        )
        for n, d, b, m, clustered in sizes
    }


def badge_rows(asked: argparse.Namespace) -> list[Measured]:
    n, d, b = (400, 16, 20) if asked.quick else (20_000, 256, 300)
    found = []
    for classes, count in ((10, n), (100, n if asked.large or asked.quick else n // 20)):
        cases = {f"BADGE, {count:,} x {d}, {classes} classes, {b} picks": badges(count, d, classes, b)}
        rows = compared(cases, rounds(asked), clock(asked))
        # Memory is that of the gradients: a few picks show it.
        found += weighed(
            remarked(rows, potential(count, d, classes)), {case: badges(count, d, classes, 5) for case in cases}
        )
    return found


def bald_rows(asked: argparse.Namespace) -> list[Measured]:
    n = 400 if asked.quick else 20_000
    cases = {f"BALD, {n:,} images, 10 classes, {passes} passes": balds(n, 10, passes) for passes in (25, 100)}
    return weighed(remarked(compared(cases, rounds(asked), clock(asked)), same_scores), cases)


def main(words: list[str] | None = None) -> None:
    asked = arguments().parse_args(words)
    tables_of: dict[str, Callable[[], list[Measured]]] = {
        "k-center": lambda: remarked(compared(center_cases(asked), rounds(asked), clock(asked)), same_picks),
        "badge": lambda: badge_rows(asked),
        "bald": lambda: bald_rows(asked),
        "top": lambda: tops(20_000 if asked.quick else asked.scores, 100 if asked.quick else 2_500),
    }
    parts = (rows() for name, rows in tables_of.items() if asked.only in (None, name))
    told_each("Selection: CPU seconds in one thread, and ratios to ours", parts, asked.json)


if __name__ == "__main__":
    main()
