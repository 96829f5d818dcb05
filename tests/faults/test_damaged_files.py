"""Truncated files and flipped bits: a sentence with its exit code, or a repair with the same results; never silence."""

import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codline.core.errors import CodlineError, DataError
from codline.learning import checkpoints
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.verification import CheckedFile, Verification, repair
from codline.runtime.object_store import ObjectStore
from codline.runtime.recorded_outputs import CAMPAIGN, read_recorded_outputs, refuse_damaged_inputs
from stages.runner import STAGES
from tests.bits import flip_bit
from tests.faults.conftest import Tally
from tests.faults.fault_points import Ended, Fault, FaultPoints
from tests.project import Project, clone_with_small_campaign, running_fork_server
from tests.workspace import Workspace, files_of, input_files

READS_FILES = [stage for stage in STAGES if stage not in ("scan", "prepare", "report")]
CACHE = Path(".dvc/cache/files/md5")
SMALL_FILE = 1500  # bytes; the long form truncates smaller files at every byte
Damage = Callable[[Path, random.Random], str]  # returns what it has done


def truncation_sizes(size: int, every_byte: bool) -> list[int]:
    """Sizes at which readers behave differently: empty, magic bytes, header, middle, footer."""
    if every_byte and size <= SMALL_FILE:
        return list(range(size))
    return sorted({0, 1, 4, 8, 9, 100, size // 2, size - 100, size - 8, size - 4, size - 1} & set(range(size)))


@pytest.mark.parametrize("stage", READS_FILES)
def test_stage_names_a_truncated_input_and_writes_nothing(workspace: Workspace, stage: str, tally: Tally) -> None:
    expected = {path: path.read_bytes() for path in workspace.outputs(stage, "c2")}
    for _, path in input_files(workspace, stage, "c2"):
        content, shown = path.read_bytes(), path.relative_to(workspace.root)
        sizes = truncation_sizes(len(content), tally.is_long and stage in ("select", "merge"))
        for size in tally.sample(sizes, 3):
            for out in expected:
                out.unlink(missing_ok=True)
            path.write_bytes(content[:size])
            problem = truncation_problem(workspace, stage, f"{shown}: ", expected)
            tally.count("truncated inputs of stages", f"{stage}: {shown} of {size} bytes", problem)
        path.write_bytes(content)


def truncation_problem(workspace: Workspace, stage: str, beginning: str, expected: dict[Path, bytes]) -> str:
    try:
        workspace.run(stage, "c2")
    except DataError as error:
        if any(out.exists() for out in expected):
            return "it wrote an output"
        return "" if str(error).startswith(beginning) else f"another sentence: {error}"
    except Exception as error:
        return repr(error)
    # JSON without its last line end is whole.
    return "" if {out: out.read_bytes() for out in expected} == expected else "not noticed"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A clone with a small campaign, run by dvc repro."""
    folder = tmp_path_factory.mktemp("recorded")
    with running_fork_server(folder / "socket") as environment:
        project = clone_with_small_campaign(folder / "codline", CODLINE_TRACKING="off", **environment)
        project.must("dvc", "repro", "-q")
        yield project


@pytest.fixture
def recorded(clone: Project, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The clone as the current directory, in an environment as DVC's. Tests leave it as it is."""
    monkeypatch.chdir(clone.root)
    for name, value in (clone.environment | {"DVC_STAGE": "evaluate@c2"}).items():
        monkeypatch.setenv(name, value)
    return Workspace(clone.root)


class InputReader:
    """Reads a file as a stage does that DVC runs; a refused file is repaired by `codline verify --repair`."""

    def __init__(self) -> None:
        self.campaigns = 0
        self.outputs, self.objects = read_recorded_outputs(), ObjectStore(CACHE)

    def problem(self, path: Path) -> str:
        try:
            self.read(path)
        except DataError:
            self.repair()
            self.read(path)
            return ""
        return "not noticed"

    def read(self, path: Path) -> None:
        self.campaigns += 1
        os.environ[CAMPAIGN] = str(self.campaigns)
        refuse_damaged_inputs([path])

    def damaged(self) -> list[CheckedFile]:
        return [file for file in Verification(self.objects).check_outputs(self.outputs.values()) if file.is_damaged]

    def repair(self) -> int:
        """The number of files that `codline verify --repair` has restored."""
        damaged = self.damaged()
        for file in damaged:
            repair(file, self.objects)
        return len(damaged)


def flip_any_bit(path: Path, rng: random.Random) -> str:
    bit = rng.randrange(8 * path.stat().st_size)
    flip_bit(path, bit)
    return f"bit {bit}"


def truncate_anywhere(path: Path, rng: random.Random) -> str:
    size, mode = rng.choice(truncation_sizes(path.stat().st_size, every_byte=True)), path.stat().st_mode
    path.chmod(0o644)  # DVC's objects are read-only
    os.truncate(path, size)
    path.chmod(mode)
    return f"truncated to {size} bytes"


def test_flipped_bits_of_every_output_are_noticed_and_repaired(recorded: Workspace, tally: Tally) -> None:
    reader, rng = InputReader(), random.Random(0)
    for output in reader.outputs.values():
        for path in files_of(Path(output.path)):
            for _ in range(20 if tally.is_long else 1):
                done = flip_any_bit(path, rng)
                tally.count("flipped bits of outputs", f"{path}, {done}", reader.problem(Path(output.path)))


@pytest.mark.parametrize("damage", [flip_any_bit, truncate_anywhere])
def test_verify_finds_and_repairs_every_damaged_file(recorded: Workspace, tally: Tally, damage: Damage) -> None:
    reader, rng = InputReader(), random.Random(1)
    outputs = [file for output in reader.outputs.values() for file in files_of(Path(output.path))]
    for path in tally.sample([*outputs, *sorted(CACHE.glob("*/*"))], 10):
        content = path.read_bytes()
        done = damage(path, rng)
        is_repaired = reader.repair() > 0 and path.read_bytes() == content
        tally.count("damaged files that codline verify finds", f"{path}, {done}", "" if is_repaired else "not repaired")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip_any_bit, truncate_anywhere])
def test_damaged_run_cache_gives_the_same_result(recorded: Workspace, tally: Tally, damage: Damage) -> None:
    """The entry of merge@c1 and the object of its output: DVC itself would restore the damaged object."""
    labeled, rng = Path("cycles/c1/labeled.parquet"), random.Random(2)
    expected, lock = labeled.read_bytes(), Path("dvc.lock").read_bytes()
    md5 = read_recorded_outputs()[str(labeled)].md5
    (entry,) = (path for path in Path(".dvc/cache/runs").glob("*/*/*") if "merge --cycle c1" in path.read_text())
    for path in [ObjectStore(CACHE).path(md5), entry] * (20 if tally.is_long else 2):
        content = path.read_bytes()
        done = damage(path, rng)
        labeled.unlink()
        Path("dvc.lock").unlink()
        try:
            DvcStages().reproduce("merge@c1")
            problem = "" if labeled.read_bytes() == expected else "another result"
        except CodlineError as error:
            problem = f"fails: {error}"
        tally.count("damaged run cache", f"{path}, {done}", problem)
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        labeled.write_bytes(expected)
        Path("dvc.lock").write_bytes(lock)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip_any_bit, truncate_anywhere])
def test_damaged_checkpoint_gives_the_same_model(
    workspace: Workspace, tally: Tally, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL_SECONDS", 0)
    outputs, rng = workspace.outputs("train", "c2"), random.Random(3)
    workspace.run("train", "c2")  # as a function: its checkpoints stay
    expected = [path.read_bytes() for path in outputs]
    (checkpoint,) = Path(".codline/checkpoints").glob("*/last.checkpoint")
    shutil.copytree(checkpoint.parent, "checkpoint")
    for _ in range(40 if tally.is_long else 2):
        done = damage(checkpoint, rng)
        with contextlib.redirect_stderr(io.StringIO()):
            workspace.run("train", "c2")
        is_same = [path.read_bytes() for path in outputs] == expected
        tally.count("damaged checkpoints", done, "" if is_same else "another model")
        shutil.rmtree(checkpoint.parent)
        shutil.copytree("checkpoint", checkpoint.parent)


def state_files(root: Path) -> list[Path]:
    """Files that commands read besides data: what DVC and codline record, notes, and what users write."""
    notes = sorted((root / ".codline").glob("*/*.json"))
    return [root / "dvc.lock", root / "params.yaml", root / ".codline/dvc.lock", root / ".dvc/tmp/rwlock", *notes]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("damage", [flip_any_bit, truncate_anywhere])
def test_damaged_state_file_ends_in_a_sentence_or_in_the_same_results(
    clone: Project, faults: FaultPoints, tally: Tally, damage: Damage, tmp_path: Path
) -> None:
    """A flipped bit in params.yaml may be another valid parameter, with other results."""
    rng, stages = random.Random(4), Workspace(clone.root).pipeline.stage_names()
    expected = {path: Path(clone.root, path).read_bytes() for path in output_files(clone.root)}
    saved = tmp_path / "saved"
    shutil.copytree(clone.root, saved, symlinks=True)
    cases = [path for path in state_files(clone.root) if path.stat().st_size]
    for path in [*cases[:3] * 5, *cases] if tally.is_long else tally.sample(cases, 2):
        done = damage(path, rng)
        status = faults.run(Fault(clone.root), "codline.cli.main", "status", **clone.environment)
        run = faults.run(Fault(clone.root), "tests.faults.reproduce", *stages, **clone.environment, CODLINE_QUIET="1")
        problem = traceback_problem(status) or traceback_problem(run)
        if not problem and run.code == 0 and path.name != "params.yaml":
            is_same = all(Path(clone.root, name).read_bytes() == content for name, content in expected.items())
            problem = "" if is_same else "other results"
        tally.count("damaged state files", f"{path.relative_to(clone.root)}, {done}", problem)
        shutil.rmtree(clone.root)
        shutil.copytree(saved, clone.root, symlinks=True)


def output_files(root: Path) -> list[str]:
    outputs = read_recorded_outputs(root / "dvc.lock").values()
    return [str(file.relative_to(root)) for output in outputs for file in files_of(root / output.path)]


def traceback_problem(ended: Ended) -> str:
    if "Traceback" in ended.output or ended.code < 0 or ended.code == 1:
        return f"exit code {ended.code}: {ended.output[-600:]}"
    is_sentence = ended.code == 0 or ended.output.count("codline: ") == 1
    return "" if is_sentence else f"no sentence: {ended.output[-600:]}"
