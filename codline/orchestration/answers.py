"""Answers of people, from the side of the flows: checked, and queries handed out, in processes without torch."""

import subprocess
import sys
from pathlib import Path

from codline.core.errors import BY_EXIT_CODE, CodlineError
from codline.runtime.pipeline import Pipeline

_checked: list[tuple[str, int, int]] | None = None  # the sheets that this process has last found valid


def check_answers() -> None:
    """Refuse mistakes in answer sheets before anything runs. What has been checked is not checked again."""
    global _checked
    if not has_people(Pipeline()):
        return
    sheets = sheet_signatures()
    if sheets != _checked:
        show(run_module("codline.labeling.check_answers"))
        _checked = sheets


def hand_out_query(cycle: str) -> None:
    """Complete the answer sheet of a query, and export its images if some have no label yet."""
    if has_people(Pipeline()):
        show(run_module("codline.labeling.query_export", cycle, "--automatic"))


def missing_labels(outdated: list[str]) -> list[str]:
    """What people have yet to label, in sentences: the query of the first cycle that lacks labels."""
    pipeline = Pipeline()
    waiting = [c for c in pipeline.queries if f"annotate@{c}" in outdated and f"select@{c}" not in outdated]
    if not waiting or not has_people(pipeline):
        return []
    return run_module("codline.labeling.check_answers", waiting[0])


def show(lines: list[str]) -> None:
    sys.stderr.writelines(f"codline: {line}\n" for line in lines)


def has_people(pipeline: Pipeline) -> bool:
    return bool(pipeline.params["annotate"]["annotator"]["name"] == "people")


def sheet_signatures() -> list[tuple[str, int, int]]:
    """Name, size and time of change of the sheets that exist."""
    paths = [Path(link["answers"]) for link in (Pipeline().params["queries"] or {}).values()]
    found = [(str(path), path.stat()) for path in paths if path.exists()]
    return [(name, status.st_size, status.st_mtime_ns) for name, status in found]


def run_module(module: str, *arguments: str) -> list[str]:
    """The lines that a module prints; its error is raised here."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"{module} failed"]
        raise BY_EXIT_CODE.get(done.returncode, CodlineError)(lines[-1].removeprefix("codline: "))
    return done.stdout.splitlines()
