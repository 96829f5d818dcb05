"""Peak memory and time of prepare and score for growing pools, each in its own process: python -m benchmarks.memory"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.campaigns import CampaignSize, prepared_campaign, without_progress_bars
from benchmarks.growth import measure_growth
from benchmarks.harness import ProcessMeasurement, argument_parser, report_each, run_in_subprocess
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace, create_workspace

SHAPE = (1, 16, 16)


def run_stage(folder: str, stage: str, cycle: str | None = None) -> None:
    with contextlib.chdir(folder), without_progress_bars():
        Workspace(Path(folder)).run(stage, cycle)


def measure_score(count: int, content_ids: bool = False) -> ProcessMeasurement:
    """With a tiny network: memory that grows with the pool becomes visible, and a million images take a minute."""
    sizes = {"start": 100, "budget": 50, "epochs": 1}
    campaign = CampaignSize(count, SHAPE, SmallCnn(width=4), **sizes, content_ids=content_ids)
    with prepared_campaign(campaign) as workspace:
        workspace.run("train", "c1")
        return run_in_subprocess(run_stage, str(workspace.root), "score", "c1")


def measure_prepare(count: int) -> ProcessMeasurement:
    """Prepare a folder of small PNG files, with a subfolder per class."""
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 9, 9, 3), np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    with TemporaryDirectory(prefix="codline-benchmark-") as folder, contextlib.chdir(folder):
        for row in range(count):
            file = Path(folder, "photos", f"class {row % 10}", f"{row:07}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            picture = pixels[row % 1000].copy()
            picture[0, 0] = row // 65536, row // 256 % 256, row % 256  # makes every image unique
            Image.fromarray(picture).save(file, compress_level=1)
        workspace = create_workspace(Path(folder))
        workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos", "test": 0.1}, "prepare.start": 0.1})
        workspace.scan_inputs()
        return run_in_subprocess(run_stage, folder, "prepare")


def main(argv: list[str] | None = None) -> None:
    parser = argument_parser(__doc__)
    large = "also score a pool of 1,000,000 and prepare a folder of 100,000: some minutes, 2 GB of disk"
    parser.add_argument("--large", action="store_true", help=large)
    arguments = parser.parse_args(argv)
    pools = [200, 2_000] if arguments.quick else [10_000, 100_000, *[1_000_000] * arguments.large]
    folders = [20, 200] if arguments.quick else [1_000, 10_000, *[100_000] * arguments.large]
    parts: list[tuple[str, Callable[[int], ProcessMeasurement], list[int]]] = [
        ("prepare, PNG files 36x36", measure_prepare, folders),
        ("score, 16x16", measure_score, pools),
        ("score, 16x16, ids from content", partial(measure_score, content_ids=True), pools),
    ]
    title = "Growing pools: elapsed seconds, resident memory"
    report_each(title, (measure_growth(*part) for part in parts), arguments.json)


if __name__ == "__main__":
    main()
