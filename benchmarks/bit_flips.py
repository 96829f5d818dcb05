"""Flips random bits in the files of a small finished campaign, and counts how many of them are noticed.

python -m benchmarks.bit_flips

Each flip keeps size and times of the file, as a failing disk does, and is undone before the next one. Readers are what
a user's command runs: train for checkpoints, the check of its inputs that a stage makes when DVC runs it, `codline
verify`, and a flow that restores a stage from DVC's cache. A flip is silent if the reader accepts other bytes than
before; it fails for ever if running again (after `codline verify --repair`, where a message says so) does not help.
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.campaigns import without_progress_bars
from codline.core.errors import DataError
from codline.core.files import write_json
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.object_store import ObjectStore
from codline.orchestration.verification import CheckedFile, Verification, repair
from codline.runtime.recorded_outputs import CAMPAIGN, read_recorded_outputs, refuse_damaged_inputs
from tests.bits import flip_bit
from tests.project import clone_with_small_campaign, running_fork_server
from tests.workspace import Workspace

TITLE = "Flipped bits"
FLIPS = 60
HEADER_BYTES = 8  # of safetensors: the length of the header that follows
CACHE = Path(".dvc/cache/files/md5")

Outcome = tuple[bool, bool]  # whether the flip was noticed, and whether the right bytes came back
Read = Callable[[Path], Outcome]


@dataclass
class Flips:
    file: str
    reader: str
    flips: int = 0
    noticed: int = 0
    silent: int = 0
    fails_for_ever: int = 0

    def count(self, outcome: Outcome) -> None:
        noticed, recovered = outcome
        self.flips += 1
        self.noticed += noticed
        self.silent += not noticed and not recovered
        self.fails_for_ever += noticed and not recovered


@contextlib.contextmanager
def finished_project() -> Iterator[Workspace]:
    """A clone with a small campaign, run by dvc repro; it is the current directory, in an environment as DVC's."""
    with TemporaryDirectory(prefix="codline-benchmark-") as folder, without_progress_bars():
        root = Path(folder) / "clone"
        with running_fork_server(Path(folder) / "socket") as environment:
            project = clone_with_small_campaign(root, CODLINE_TRACKING="off", **environment)
            project.must("dvc", "repro", "-q")
            before = dict(os.environ)
            os.environ |= project.environment | {"DVC_STAGE": "evaluate@c2"}
            try:
                with contextlib.chdir(root):
                    yield Workspace(root)
            finally:
                os.environ.clear()
                os.environ |= before


def count_flips(row: Flips, paths: list[Path], bits: Callable[[Path], range], read: Read, flips: int) -> Flips:
    """Flip one bit after the other, each in a random one of these files, and let `read` find it."""
    rng = random.Random(f"{row.file}, {row.reader}")
    for _ in track(range(flips), row.file, transient=True):
        path = rng.choice(paths)
        flip_bit(path, rng.choice(bits(path)))
        row.count(read(path))
    return row


def all_bits(path: Path) -> range:
    return range(8 * path.stat().st_size)


def header_bits(path: Path) -> range:
    with path.open("rb") as file:
        return range(8 * (HEADER_BYTES + int.from_bytes(file.read(HEADER_BYTES), "little")))


def body_bits(path: Path) -> range:
    return range(header_bits(path).stop, all_bits(path).stop)


class CheckpointReader:
    """Trains on from a checkpoint with a flipped bit; the outputs should be those of an undisturbed training."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.outputs = workspace, workspace.outputs("train", "c2")
        workspace.run("train", "c2")  # as a function: its checkpoints stay
        self.expected = [path.read_bytes() for path in self.outputs]
        (self.path,) = Path(".codline/checkpoints").glob("*/last.checkpoint")
        shutil.move(self.path.parent, Path("checkpoint"))
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)
        shutil.copytree("checkpoint", self.path.parent)

    def __call__(self, _: Path) -> Outcome:
        try:
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.workspace.run("train", "c2")
        except Exception:
            return True, self.runs_again()
        finally:
            self.reset()
        return "damaged" in errors.getvalue(), self.outputs_are_right()

    def runs_again(self) -> bool:
        with contextlib.suppress(Exception):
            self.workspace.run("train", "c2")
            return self.outputs_are_right()
        return False

    def outputs_are_right(self) -> bool:
        return [path.read_bytes() for path in self.outputs] == self.expected


class InputReader:
    """Reads a file as a stage does that DVC runs; a refused file is repaired by `codline verify --repair`."""

    def __init__(self) -> None:
        self.campaigns = 0
        self.outputs, self.objects = read_recorded_outputs(), ObjectStore(CACHE)

    def __call__(self, path: Path) -> Outcome:
        try:
            self.read(path)
        except DataError:
            for file in self.damaged():
                repair(file, self.objects)
            self.read(path)
            return True, True
        return False, False

    def read(self, path: Path) -> None:
        self.campaigns += 1
        os.environ[CAMPAIGN] = str(self.campaigns)
        refuse_damaged_inputs([path])

    def damaged(self) -> list[CheckedFile]:
        return [file for file in Verification(self.objects).check_outputs(self.outputs.values()) if file.is_damaged]

    def verify(self, _: Path) -> Outcome:
        damaged = self.damaged()
        for file in damaged:
            repair(file, self.objects)
        return bool(damaged), bool(damaged) and not self.damaged()


def restore_by_flow(path: Path) -> Outcome:
    """Let a flow restore merge@c1 from DVC's cache; the flipped object is that of its output."""
    labeled = Path("cycles/c1/labeled.parquet")
    expected = labeled.read_bytes()
    labeled.unlink()
    DvcStages().reproduce("merge@c1")
    noticed = path.read_bytes() == expected  # the damaged object was replaced
    return noticed, labeled.read_bytes() == expected


def rows(flips: int) -> Iterator[Flips]:
    with finished_project() as workspace:
        reader, objects = InputReader(), sorted(CACHE.glob("*/*"))
        for name in ("cycles/c2/model.safetensors", "cycles/c1/outputs.parquet", "data/images.arrow"):
            yield count_flips(Flips(name, "stage run by DVC"), [Path(name)], all_bits, reader, flips)
        files = [Path(output.path) for output in reader.outputs.values() if not output.is_directory]
        yield count_flips(Flips("any output", "codline verify"), files, all_bits, reader.verify, flips)
        yield count_flips(Flips("any object in DVC's cache", "codline verify"), objects, all_bits, reader.verify, flips)
        merged = [reader.objects.path(reader.outputs["cycles/c1/labeled.parquet"].md5)]
        yield count_flips(Flips("object in DVC's cache", "codline run"), merged, all_bits, restore_by_flow, flips // 4)
        checkpoints = CheckpointReader(workspace)
        for kind, bits in (("header", header_bits), ("body", body_bits)):
            row = Flips(f"checkpoint, {kind}", "train")
            yield count_flips(row, [checkpoints.path], bits, checkpoints, flips)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few flips")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args(words)
    table, figures = Table(title=TITLE, width=100), []
    for heading in ("file", "reader", "flips", "noticed", "silent", "fails for ever"):
        table.add_column(heading, justify="left" if heading in ("file", "reader") else "right")
    for row in rows(4 if arguments.quick else FLIPS):
        table.add_row(*map(str, asdict(row).values()))
        figures.append(asdict(row))
    Console(width=100).print(table)
    if arguments.json:
        write_json(arguments.json, {"title": TITLE, "figures": figures})


if __name__ == "__main__":
    main()
