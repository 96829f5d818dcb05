"""The golden campaign: the demo, reproduced by DVC, compared with the committed dvc.lock and the recorded query ids."""

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
from tests.project import BIN, Project, copy_repository
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
    "cycles/*/details.json",
    "cycles/*/predictions.csv",
    "models/best.safetensors",
]


def machine_differences() -> list[str]:
    """What may change bytes on this machine, compared with the recorded one."""
    # In a process of its own: it pins torch's instructions.
    script = "import json; from codline.cli.doctor import machine_facts; print(json.dumps(machine_facts()))"
    command = [BIN / "python", "-c", script]
    facts = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return differences(json.loads((REPOSITORY / RECORD).read_text()), json.loads(facts))


@pytest.fixture
def clone(tmp_path: Path) -> Project:
    """The repository as a user has it, with dvc.lock and without results."""
    root = tmp_path / "codline"
    copy_repository(root)
    project = Project(root, CODLINE_TRACKING="off")
    project.must("git", "init", "-q")
    return project


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_dvc_repro_in_a_fresh_clone_reproduces_the_committed_lock(clone: Project) -> None:
    if different := machine_differences():
        pytest.skip(f"this machine differs from the recorded one in {', '.join(different)}")
    committed = clone.lock
    clone.must("dvc", "repro", timeout=580)
    found, expected = output_hashes(clone.lock.decode()), output_hashes(committed.decode())
    same = [path for path in expected if any(fnmatch(path, pattern) for pattern in SAME_BYTES_ON_EVERY_CPU)]
    assert {path: found[path] for path in same} == {path: expected[path] for path in same}
    pipeline = Pipeline(clone.root)
    others = [f"cycles/{cycle}/diagnostics.json" for cycle in pipeline.queries]
    assert sorted(set(expected) - set(same)) == sorted([*others, "report"])
    if not cpu_differs(REPOSITORY / RECORD):
        assert clone.lock == committed
    queries = {cycle: pipeline.path("select", "query", cycle) for cycle in pipeline.queries}
    ids = {cycle: tables.read_table(path, tables.QUERY)["id"].to_pylist() for cycle, path in queries.items()}
    assert ids == json.loads(GOLDEN.read_text())["ids"]
    paths = {cycle: pipeline.path("diagnose", "diagnostics", cycle) for cycle in pipeline.queries}
    diagnostics = {cycle: json.loads(path.read_text()) for cycle, path in paths.items()}
    recorded = dict(numbers(json.loads(DIAGNOSTICS.read_text())))
    assert dict(numbers(diagnostics)) == pytest.approx(recorded, rel=1e-5, abs=1e-9)


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, float | None]]:
    """The numbers in nested JSON, by dotted key."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inner, f"{key}.{name}")
    else:
        yield key, value


def test_recorded_query_ids_are_those_of_the_committed_lock() -> None:
    """dvc.lock and the recorded ids are committed together."""
    golden = json.loads(GOLDEN.read_text())
    committed = output_hashes((REPOSITORY / "dvc.lock").read_text())
    pipeline = Pipeline(REPOSITORY)
    assert list(golden["ids"]) == pipeline.queries
    assert golden["md5"] == {cycle: committed[f"cycles/{cycle}/query.parquet"] for cycle in pipeline.queries}
