"""k-center, BADGE, BALD and selecting the top scores, compared with other libraries: python -m benchmarks.selection"""

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
    Measurement,
    Unavailable,
    add_remarks,
    argument_parser,
    chosen_clock,
    compare,
    counted_rounds,
    peak_array_memory,
    report_each,
    require_package,
    run_in_subprocess,
)
from codline.acquisition.distances import Points, gradient_embeddings, update_min_distances
from codline.acquisition.k_center import k_center
from codline.acquisition.learner_context import LearnerContext
from codline.acquisition.uncertainty import entropy, mean_and_entropy
from codline.core.files import write_json
from codline.data import output_store, tables
from codline.data.output_store import softmax
from codline.strategies.badge import Badge
from codline.strategies.bald import Bald
from codline.strategies.base import LabeledFeatures, Outputs, PoolChunk, PoolFeatures
from codline.strategies.scikit_activeml import fixed_classifier
from stages.select import Params, select

SMALL_TEXT_LIMIT = 200_000  # images x picks that small-text computes in a minute
ROW_GROUP_ROWS = 1 << 20
Cases = dict[str, dict[str, Contender]]


@contextlib.contextmanager
def library(package: str) -> Iterator[None]:
    """Ignore the library's warnings; if it is not installed, the table says so."""
    require_package(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_features(count: int, width: int, clustered: bool) -> np.ndarray:
    """Clustered features, as after a network's last ReLU; or one normal cloud, where lazy evaluation saves little."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, width), np.float32)
    if not clustered:
        return rows
    centers = 2 * rng.standard_normal((50, width), np.float32)
    scales = rng.gamma(2, 0.5, (count, 1)).astype(np.float32)
    clusters: np.ndarray = np.maximum(rows * scales + centers[rng.integers(0, 50, count)], 0)
    return clusters


def make_probs(count: int, classes: int) -> np.ndarray:
    return softmax(2 * np.random.default_rng(1).standard_normal((count, classes)))


def k_center_contenders(count: int, width: int, budget: int, labeled: int, clustered: bool) -> dict[str, Contender]:
    rows = make_features(count + labeled, width, clustered)
    return {
        "codline": lambda: k_center(Points.from_rows(rows), count, budget),
        "plain greedy": lambda: plain_greedy(rows, count, budget),
        "scikit-activeml": lambda: activeml_k_center(rows, count, budget),
        "small-text": lambda: small_text_k_center(rows, count, budget),
    }


def plain_greedy(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    """One float32 matrix-vector product per pick."""
    pool, norms, picks = rows[:count], (rows * rows).sum(axis=1), list[int]()
    distances = norms[:count] + (norms[count:] - 2 * (pool @ rows[count:].T)).min(axis=1)
    for _ in range(budget):
        row = int(distances.argmax())
        distances = np.minimum(distances, norms[:count] + norms[row] - 2 * (pool @ rows[row]))
        distances[row] = -1
        picks.append(row)
    return np.array(picks)


def activeml_k_center(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    with library("scikit-activeml"):
        from skactiveml.pool import k_greedy_center

        labels = np.where(np.arange(len(rows)) < count, np.nan, 0)
        return np.asarray(k_greedy_center(rows, labels, batch_size=budget, random_state=0)[0])


def small_text_k_center(rows: np.ndarray, count: int, budget: int) -> np.ndarray:
    with library("small-text"):
        if count * budget > SMALL_TEXT_LIMIT:
            raise Unavailable("left out: it computes all distances again for every pick")
        from small_text.query_strategies.coresets import greedy_coreset

        indices = np.arange(len(rows))  # candidates first: otherwise it computes distances to the wrong rows
        return np.asarray(greedy_coreset(rows, indices[:count], indices[count:], budget, distance_metric="euclidean"))


def compare_picks(reference: np.ndarray, picks: np.ndarray) -> str:
    equal = int((reference == picks).cumprod().sum())
    if equal == len(picks):
        return "identical picks"
    return f"{len(np.intersect1d(reference, picks))} of {len(picks)} the same; the first {equal} in order"


def badge_contenders(count: int, width: int, classes: int, budget: int) -> dict[str, Contender]:
    rows, probs = make_features(count, width, clustered=True), make_probs(count, classes)
    no_labels = LabeledFeatures(np.empty(0, np.int64), np.empty(0, np.int32), rows[:0])
    context = LearnerContext(lambda ids: ids, None, 0, lambda _done, _total: None)
    pool = PoolFeatures(np.arange(count), Outputs(np.log(probs), probs), rows, no_labels, context)
    return {
        "codline": lambda: Badge().select_query(pool, budget, np.random.default_rng(0)),
        "scikit-activeml": lambda: activeml_badge(probs, rows, budget),
    }


def activeml_badge(probs: np.ndarray, rows: np.ndarray, budget: int) -> np.ndarray:
    with library("scikit-activeml"):
        from skactiveml.pool import Badge as ActivemlBadge

        labels, model = np.full(len(rows), np.nan), fixed_classifier(rows, probs)
        strategy = ActivemlBadge(random_state=0)
        return np.asarray(strategy.query(rows, labels, model, fit_clf=False, batch_size=budget))


def compare_potentials(count: int, width: int, classes: int) -> Callable[[Any, Any], str]:
    """A remark on the k-means++ potential: the picks are random, but the sum of the remaining distances is similar."""
    gradients = gradient_embeddings(make_probs(count, classes), make_features(count, width, clustered=True))

    def potential(picks: np.ndarray) -> float:
        return float(update_min_distances(gradients, np.full(count, np.inf), picks).sum())

    return lambda reference, picks: f"distances left: {potential(picks) / potential(reference):.3f} of ours"


def bald_contenders(count: int, classes: int, passes: int) -> dict[str, Contender]:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((count, classes))
    outputs = Outputs(logits, softmax(logits))

    def samples() -> Iterator[np.ndarray]:
        noise = np.random.default_rng(1)
        for _ in range(passes):
            yield softmax(logits + noise.standard_normal((1, classes)))

    def bald() -> np.ndarray:
        return Bald(passes=passes).scores(PoolChunk(np.arange(count), outputs, dropout_probs=samples()), rng)

    return {"codline": bald, "baal": lambda: baal_bald(samples()), "numpy, stacked": lambda: stacked_bald(samples())}


def baal_bald(samples: Iterator[np.ndarray]) -> np.ndarray:
    """All passes are in memory, as after baal's predict_on_dataset."""
    with library("baal"):
        from baal.active.heuristics import BALD

        return np.asarray(BALD().get_uncertainties(np.stack([*samples], axis=-1)))


def stacked_bald(samples: Iterator[np.ndarray]) -> np.ndarray:
    probs_TNC = np.stack([*samples])
    scores: np.ndarray = entropy(probs_TNC.mean(axis=0)) - mean_and_entropy(probs_TNC)[1]
    return scores


def compare_scores(reference: np.ndarray, scores: np.ndarray) -> str:
    return f"scores differ by {np.abs(reference - scores).max():.0e} at most"


def add_peak_memory(measurements: list[Measurement], cases: Cases) -> list[Measurement]:
    """Run every contender once more and record its peak memory."""
    return [
        row if row.seconds is None else replace(row, memory=peak_array_memory(cases[row.case][row.contender]))
        for row in measurements
    ]


def write_inputs_of_select(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    with (
        pq.ParquetWriter(folder / "scores.parquet", tables.SCORES) as scores,
        pq.ParquetWriter(folder / "pool.parquet", tables.POOL) as pool,
    ):
        for start in range(0, count, ROW_GROUP_ROWS):
            ids = np.arange(start, min(start + ROW_GROUP_ROWS, count))
            scores.write_table(pa.table([ids, rng.random(len(ids))], schema=tables.SCORES))
            hashes = np.frombuffer(rng.bytes(32 * len(ids)).hex().encode(), "S64").astype("U64")
            pool.write_table(pa.table([ids, hashes], schema=tables.POOL))
    info = {"task": "classification", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]}
    write_json(folder / "dataset.json", info)
    with output_store.output_writer(folder / "outputs.parquet", (2,), "c1"):
        pass


def top_by_codline(folder: Path, budget: int) -> list[int]:
    files = {name: folder / f"{name}.parquet" for name in ("pool", "outputs", "scores", "query")}
    select(Params(budget=budget), seed=0, cycle="c1", dataset=folder / "dataset.json", **files)
    return list(tables.read_table(files["query"], tables.QUERY)["id"].to_pylist())


def top_by_numpy(folder: Path, budget: int) -> list[int]:
    table = pq.read_table(folder / "scores.parquet")
    order = np.argsort(-table["score"].to_numpy(), kind="stable")[:budget]
    return list(table["id"].to_numpy()[order].tolist())


def top_by_pyarrow(folder: Path, budget: int) -> list[int]:
    table = pq.read_table(folder / "scores.parquet")
    order = pc.select_k_unstable(table, budget, [("score", "descending"), ("id", "ascending")])
    return list(table["id"].take(order).to_pylist())


def top_by_row_groups(folder: Path, budget: int) -> list[int]:
    """A lower bound: read chunk by chunk, and keep the best so far."""
    ids, scores = np.empty(0, np.int64), np.empty(0)
    for chunk in pq.ParquetFile(folder / "scores.parquet").iter_batches(ROW_GROUP_ROWS):
        ids, scores = np.concatenate([ids, chunk["id"].to_numpy()]), np.concatenate([scores, chunk["score"].to_numpy()])
        if len(scores) > budget:
            lowest = np.partition(scores, len(scores) - budget)[len(scores) - budget]
            ids, scores = ids[scores >= lowest], scores[scores >= lowest]
    return list(ids[np.lexsort((ids, -scores))][:budget].tolist())


def measure_top(count: int, budget: int) -> list[Measurement]:
    """Run each contender once, in a process of its own: wall-clock time and, mainly, resident memory."""
    contenders = {
        "codline: select": top_by_codline,
        "numpy argsort": top_by_numpy,
        "pyarrow select_k": top_by_pyarrow,
        "by row groups": top_by_row_groups,
    }
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        write_inputs_of_select(Path(folder), count)
        runs = {name: run_in_subprocess(top, Path(folder), budget) for name, top in contenders.items()}
    reference = runs["codline: select"].seconds
    measurements = [
        Measurement(
            case=f"top {budget:,} of {count:,} scores in a file",
            contender=name,
            seconds=run.seconds,
            ratio=run.seconds / reference,
            memory=run.peak_resident - run.resident_before,
            answer=np.array(run.answer),
        )
        for name, run in runs.items()
    ]
    return add_remarks(measurements, compare_picks)


def measure_k_center(arguments: argparse.Namespace) -> list[Measurement]:
    sizes = [
        (4_000, 256, 50, 500, True),
        (20_000, 256, 300, 20, True),
        (20_000, 256, 300, 500, True),
        (20_000, 256, 300, 500, False),
    ]
    if arguments.quick:
        sizes = [(400, 16, 20, 50, True)]
    if arguments.large:
        sizes.append((100_000, 512, 2_500, 500, True))
    cases = {}
    for count, width, budget, labeled, clustered in sizes:
        size = f"{count:,} x {width}, {budget:,} picks, {labeled} labelled"
        shape = "clustered" if clustered else "one cloud"
        cases[f"k-center, {size}, {shape}"] = k_center_contenders(count, width, budget, labeled, clustered)
    return add_remarks(compare(cases, counted_rounds(arguments), chosen_clock(arguments)), compare_picks)


def measure_badge(arguments: argparse.Namespace) -> list[Measurement]:
    count, width, budget = (400, 16, 20) if arguments.quick else (20_000, 256, 300)
    measurements = []
    for classes in (10, 100):
        if classes == 100 and not (arguments.large or arguments.quick):
            count //= 20
        case = f"BADGE, {count:,} x {width}, {classes} classes, {budget} picks"
        contenders = badge_contenders(count, width, classes, budget)
        rows = compare({case: contenders}, counted_rounds(arguments), chosen_clock(arguments))
        rows = add_remarks(rows, compare_potentials(count, width, classes))
        # The gradients dominate the memory, so a few picks are enough to measure it.
        measurements += add_peak_memory(rows, {case: badge_contenders(count, width, classes, 5)})
    return measurements


def measure_bald(arguments: argparse.Namespace) -> list[Measurement]:
    count = 400 if arguments.quick else 20_000
    cases = {
        f"BALD, {count:,} images, 10 classes, {passes} passes": bald_contenders(count, 10, passes)
        for passes in (25, 100)
    }
    measurements = compare(cases, counted_rounds(arguments), chosen_clock(arguments))
    return add_peak_memory(add_remarks(measurements, compare_scores), cases)


def main(words: list[str] | None = None) -> None:
    benchmarks: dict[str, Callable[[argparse.Namespace], list[Measurement]]] = {
        "k-center": measure_k_center,
        "badge": measure_badge,
        "bald": measure_bald,
        "top": lambda arguments: measure_top(*((20_000, 100) if arguments.quick else (arguments.scores, 2_500))),
    }
    parser = argument_parser(__doc__, rounds=3)
    large = "also k-center of 100,000 x 512 with 2,500 picks, and BADGE with 100 classes on 20,000 images"
    parser.add_argument("--large", action="store_true", help=large)
    scores = "number of scores to select the top of; 100000000 needs 8 GB of disk"
    parser.add_argument("--scores", type=int, default=5_000_000, help=scores)
    parser.add_argument("--only", choices=[*benchmarks], help="run one of the benchmarks")
    arguments = parser.parse_args(words)
    parts = (measure(arguments) for name, measure in benchmarks.items() if arguments.only in (None, name))
    report_each("Selection: CPU seconds in one thread, and ratios to ours", parts, arguments.json)


if __name__ == "__main__":
    main()
