"""Peak memory and time of the score stage for pools of growing size, each in a process of its own: python -m benchmarks.memory"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import contextlib
from pathlib import Path

import numpy as np

from benchmarks.campaigns import Plan, prepared, silent
from benchmarks.harness import Apart, Measured, apart, parser, told
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace

SHAPE = (1, 16, 16)


def score(folder: str) -> None:
    with contextlib.chdir(folder), silent():
        Workspace(Path(folder)).run("score", "c1")


def scored(count: int) -> Apart:
    """A network so small that a million images take a minute: what grows with the pool shows sooner."""
    with prepared(Plan(count, SHAPE, SmallCnn(width=4), start=100, budget=50, epochs=1)) as workspace:
        workspace.run("train", "c1")
        return apart(score, str(workspace.root))


def grown(counts: list[int], values: list[float]) -> float:
    """The slope of a straight line through them."""
    return float(np.polyfit(counts, values, 1)[0])


def row(count: int, one: Apart, first: Apart) -> Measured:
    mapped = f"{one.own / 1e6:,.0f} MB of it without mapped files, {one.own / first.own:.2f} x the first"
    return Measured(f"score, {count:,} images 16x16", "score stage", one.seconds, one.seconds / first.seconds, one.resident, mapped)


def main(words: list[str] | None = None) -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--million", action="store_true", help="also a pool of 1,000,000: some minutes, 1 GB of disk")
    asked = arguments.parse_args(words)
    counts = [200, 2_000] if asked.quick else [10_000, 100_000, *[1_000_000] * asked.million]
    found = {count: scored(count) for count in counts}
    rows = [row(count, one, found[counts[0]]) for count, one in found.items()]
    seconds = grown(counts, [one.seconds for one in found.values()])
    kept = grown(counts, [one.own for one in found.values()])
    slope = f"{1e6 * seconds:.1f} microseconds and {kept:.0f} bytes of its own for every image more"
    told(f"Scoring a growing pool, by the clock: {slope}", rows, asked.json)


if __name__ == "__main__":
    main()
