"""Peak memory and time of prepare and score for pools of growing size, each in a process of its own: python -m benchmarks.memory"""

import stages  # noqa: F401  isort: skip (tells numpy its instructions before it is imported)

import contextlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.campaigns import Plan, prepared, silent
from benchmarks.harness import Apart, Measured, apart, parser, told_each
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace, created

SHAPE = (1, 16, 16)


def score(folder: str) -> None:
    with contextlib.chdir(folder), silent():
        Workspace(Path(folder)).run("score", "c1")


def scored(count: int) -> Apart:
    """A network so small that a million images take a minute: what grows with the pool shows sooner."""
    with prepared(Plan(count, SHAPE, SmallCnn(width=4), start=100, budget=50, epochs=1)) as workspace:
        workspace.run("train", "c1")
        return apart(score, str(workspace.root))


def prepare(folder: str) -> None:
    with contextlib.chdir(folder), silent():
        Workspace(Path(folder)).run("prepare")


def ingested(count: int) -> Apart:
    """From a folder of small PNG files, one in a class's folder after the other."""
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 9, 9, 3), np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    with TemporaryDirectory(prefix="codline-benchmark-") as folder, contextlib.chdir(folder):
        for row in range(count):
            file = Path(folder, "photos", f"class {row % 10}", f"{row:07}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            picture = pixels[row % 1000].copy()
            picture[0, 0] = row // 65536, row // 256 % 256, row % 256  # no two alike
            Image.fromarray(picture).save(file, compress_level=1)
        workspace = created(Path(folder))
        workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos", "test": 0.1}, "prepare.start": 0.1})
        return apart(prepare, folder)


def grown(counts: list[int], values: list[float]) -> float:
    """The slope of a straight line through them."""
    return float(np.polyfit(counts, values, 1)[0])


def measured(title: str, act: Callable[[int], Apart], counts: list[int]) -> list[Measured]:
    found = {count: act(count) for count in counts}
    first = found[counts[0]]
    seconds, kept = (grown(counts, [getattr(one, name) for one in found.values()]) for name in ("seconds", "own"))
    peaks = {count: f"peak {one.resident / first.resident:.2f} x the first" for count, one in found.items()}
    rows = [
        Measured(title, f"{count:,} images", one.seconds, one.seconds / first.seconds, one.resident, peaks[count])
        for count, one in found.items()
    ]
    return [
        *rows,
        Measured(title, "every image more", note=f"{1e6 * seconds:.1f} microseconds, {kept:.0f} bytes of its own"),
    ]


def main(words: list[str] | None = None) -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--large",
        action="store_true",
        help="also score a pool of 1,000,000 and prepare a folder of 100,000: some minutes, 2 GB of disk",
    )
    asked = arguments.parse_args(words)
    pools = [200, 2_000] if asked.quick else [10_000, 100_000, *[1_000_000] * asked.large]
    folders = [20, 200] if asked.quick else [1_000, 10_000, *[100_000] * asked.large]
    works = [("prepare, PNG files 36x36", ingested, folders), ("score, 16x16", scored, pools)]
    told_each("Growing pools: seconds on the clock, resident memory", (measured(*work) for work in works), asked.json)


if __name__ == "__main__":
    main()
