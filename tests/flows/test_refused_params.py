"""Values that a stage refuses do not stay in params.yaml, and nothing else is left of them."""

import json

import pytest

from codline.core.errors import DataError, WaitingForPeople
from tests.project import Project

FOLDER = {"name": "folder", "path": "photos", "size": 32}
CALL_FLOW = f"""
from codline.core.errors import CodlineError
from flows.campaign import campaign

try:
    campaign(overrides={{"prepare.dataset": {FOLDER}}})
except CodlineError as error:
    print(error)
    raise SystemExit(error.exit_code)
"""
COMMANDS = pytest.mark.parametrize(
    "command",
    [["codline", "run", "-S", f"prepare.dataset={json.dumps(FOLDER)}"], ["python", "-c", CALL_FLOW]],
    ids=["command", "flow"],
)


@COMMANDS
def test_campaign_refuses_a_missing_folder_before_params_yaml_is_written(project: Project, command: list[str]) -> None:
    before = (project.root / "params.yaml").stat().st_mtime_ns
    done = project.run(*command)
    assert done.returncode == DataError.exit_code
    assert "photos: not found; prepare.dataset names it" in done.stderr + done.stdout
    assert (project.root / "params.yaml").stat().st_mtime_ns == before


@COMMANDS
def test_campaign_puts_params_yaml_back_if_a_stage_refuses_its_values(project: Project, command: list[str]) -> None:
    (project.root / "photos").mkdir()
    (project.root / "photos/notes.txt").write_text("no image")
    before, lock = (project.root / "params.yaml").read_bytes(), project.lock
    done = project.run(*command)
    assert done.returncode == DataError.exit_code
    assert "photos: found no image in it or its folders (other files: 1)" in done.stderr + done.stdout
    assert "params.yaml has its previous values again" in done.stderr + done.stdout
    assert (project.root / "params.yaml").read_bytes() == before
    assert project.lock == lock
    assert json.loads(project.must("dvc", "status", "--json")) == {}  # also the outputs that DVC had deleted are back


def test_campaign_that_waits_for_labels_keeps_its_params_yaml(project: Project) -> None:
    done = project.run("codline", "run", "-S", "annotate.annotator={name: people}", "-S", "prepare.start=0.1")
    assert done.returncode == WaitingForPeople.exit_code
    assert "have no label yet" in done.stderr
    assert "previous values" not in done.stderr
    assert "answers/c1.csv" in (project.root / "params.yaml").read_text()


def test_campaign_keeps_values_with_which_a_stage_has_run(project: Project) -> None:
    text = (project.root / "stages/select.py").read_text()
    broken = text.replace(
        "    wanted, scored = ", '    raise DataError("select does not like it")\n    wanted, scored = '
    )
    assert broken != text
    (project.root / "stages/select.py").write_text(broken)
    done = project.run("codline", "run", "-S", "score.strategy={name: margin}")
    assert done.stderr == "codline: select@c1: select does not like it\n"
    assert "margin" in (project.root / "params.yaml").read_text()
