"""The golden campaign: the demo of params.yaml, run whole, against the committed dvc.lock and the committed ids of every query."""

import json
import subprocess
from pathlib import Path

import pytest

from codline import tables
from codline.doctor import RECORD, differences, hashes
from codline.wiring import Wiring
from tests.flows.project import BIN, Project, warmed
from tests.workspace import REPOSITORY

GOLDEN = Path(__file__).parent / "golden" / "queries.json"


def recorded_machine() -> str:
    """Why bytes may differ here; empty where they may not."""
    if not (REPOSITORY / RECORD).exists():
        return f"no {RECORD}"
    script = "import json; from codline.doctor import facts; print(json.dumps(facts()))"  # apart: it pins torch's instructions
    here = subprocess.run([BIN / "python", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    other = differences(json.loads((REPOSITORY / RECORD).read_text()), json.loads(here))
    return f"this machine differs from the recorded one in {', '.join(other)}" if other else ""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The demo exactly as a user has it, reproduced by bare DVC."""
    root = tmp_path_factory.mktemp("demo") / "codline"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((REPOSITORY / name).read_bytes())
    project = Project(root, CODLINE_TRACKING="off")
    project.must("git", "init", "-q")
    return project


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_dvc_repro_in_a_fresh_clone_reproduces_the_committed_lock(demo: Project, tmp_path: Path) -> None:
    """The first training and the report in processes started afresh, the rest with the imports of one process, which is two minutes less.

    That no stage's bytes depend on it is tests/test_exit_codes.py's to show.
    """
    if why := recorded_machine():
        pytest.skip(why)
    committed = demo.lock
    demo.must("dvc", "repro", "train@c1")
    with warmed(tmp_path / "door") as warm:
        demo.having(**warm).must("dvc", "repro", timeout=580)
    demo.must("dvc", "repro", "--force", "--single-item", "report")
    assert hashes(demo.lock.decode()) == hashes(committed.decode())
    assert demo.lock == committed
    wiring = Wiring(demo.root)
    asked = {cycle: tables.read(wiring.path("select", "query", cycle), tables.QUERY)["id"].to_pylist() for cycle in wiring.queries}
    assert asked == json.loads(GOLDEN.read_text())["ids"]


def test_the_golden_ids_are_those_of_the_committed_lock() -> None:
    """Cheap, everywhere: nobody may commit a new dvc.lock and forget the ids, or the reverse."""
    golden = json.loads(GOLDEN.read_text())
    committed = hashes((REPOSITORY / "dvc.lock").read_text())
    wiring = Wiring(REPOSITORY)
    assert list(golden["ids"]) == wiring.queries
    assert golden["md5"] == {cycle: committed[f"cycles/{cycle}/query.parquet"] for cycle in wiring.queries}
