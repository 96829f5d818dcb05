"""The golden campaign: the demo of params.yaml, run whole, against the committed dvc.lock and the committed ids of every query."""

import json
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from codline.cli.doctor import RECORD, cpu_differs, differences, output_hashes
from codline.data import tables
from codline.runtime.pipeline import Pipeline
from tests.project import BIN, Project, running_fork_server
from tests.workspace import REPOSITORY

GOLDEN = Path(__file__).parent / "golden" / "queries.json"
DIAGNOSTICS = GOLDEN.with_name("diagnostics.json")
SAME_BYTES_ON_EVERY_CPU = [  # x86-64 with AVX2: what docs/reproducibility.md promises
    "data/*",
    "cycles/*/model.safetensors",
    "cycles/*/auxiliary.safetensors",
    "cycles/*/training.csv",
    "cycles/*/outputs.parquet",
    "cycles/*/scores.parquet",
    "cycles/*/query.parquet",
    "cycles/*/annotations.parquet",
    "cycles/*/cost.json",
    "cycles/*/labeled.parquet",
    "cycles/*/metrics.json",
    "cycles/*/predictions.csv",
]


def recorded_machine() -> str:
    """Why bytes may differ here; empty where they may not."""
    if not (REPOSITORY / RECORD).exists():
        return f"no {RECORD}"
    script = "import json; from codline.doctor import facts; print(json.dumps(facts()))"  # apart: it pins torch's instructions
    here = subprocess.run(
        [BIN / "python", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    other = differences(json.loads((REPOSITORY / RECORD).read_text()), json.loads(here))
    return f"this machine differs from the recorded one in {', '.join(other)}" if other else ""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The demo exactly as a user has it, reproduced by bare DVC."""
    root = tmp_path_factory.mktemp("demo") / "codline"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
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

    That no stage's bytes depend on it is tests/core/test_exit_codes.py's to show.
    """
    if why := recorded_machine():
        pytest.skip(why)
    committed = demo.lock
    demo.must("dvc", "repro", "train@c1")
    with running_fork_server(tmp_path / "socket") as environment:
        demo.having(**environment).must("dvc", "repro", timeout=580)
    demo.must("dvc", "repro", "--force", "--single-item", "report")
    found, expected = output_hashes(demo.lock.decode()), output_hashes(committed.decode())
    promised = [path for path in expected if any(fnmatch(path, pattern) for pattern in SAME_BYTES_ON_EVERY_CPU)]
    assert {path: found[path] for path in promised} == {path: expected[path] for path in promised}
    assert sorted(set(expected) - set(promised)) == sorted(
        [*(f"cycles/c{i}/diagnostics.json" for i in range(1, 7)), "report"]
    )
    if not cpu_differs(REPOSITORY / RECORD):
        assert demo.lock == committed
    pipeline = Pipeline(demo.root)
    asked = {
        cycle: tables.read_table(pipeline.path("select", "query", cycle), tables.QUERY)["id"].to_pylist()
        for cycle in pipeline.queries
    }
    assert asked == json.loads(GOLDEN.read_text())["ids"]
    measured = {
        cycle: json.loads(pipeline.path("diagnose", "diagnostics", cycle).read_text()) for cycle in pipeline.queries
    }
    assert dict(numbers(measured)) == pytest.approx(
        dict(numbers(json.loads(DIAGNOSTICS.read_text()))), rel=1e-5, abs=1e-9
    )


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, float | None]]:
    """The numbers in nested JSON, by dotted key."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inner, f"{key}.{name}")
    else:
        yield key, value


def test_the_golden_ids_are_those_of_the_committed_lock() -> None:
    """Cheap, everywhere: nobody may commit a new dvc.lock and forget the ids, or the reverse."""
    golden = json.loads(GOLDEN.read_text())
    committed = output_hashes((REPOSITORY / "dvc.lock").read_text())
    pipeline = Pipeline(REPOSITORY)
    assert list(golden["ids"]) == pipeline.queries
    assert golden["md5"] == {cycle: committed[f"cycles/{cycle}/query.parquet"] for cycle in pipeline.queries}
