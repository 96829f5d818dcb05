"""The plan of a study: its points, which of them are done, where their files are, and the results so far."""

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core.errors import CodlineError, UserError
from codline.core.files import read_json, write_json
from codline.core.locks import file_lock
from codline.orchestration import study_grid, worktrees
from codline.orchestration.params_file import check_params
from codline.orchestration.people_defaults import annotator_name
from codline.orchestration.study_grid import Overrides, Study, StudyPoint
from codline.runtime import state_directory
from codline.runtime.background import Background
from codline.runtime.campaign_identity import SEPARATOR
from codline.runtime.pipeline import Pipeline

PointListener = Callable[[StudyPoint, str], None]
listeners: list[PointListener] = []  # called with (point, "running" | "done" | "failed")


@dataclass
class StudyPlan:
    """A study of the committed code."""

    study: Study
    points: list[StudyPoint]
    commit: str
    code_version: str
    states: dict[str, str] = field(default_factory=dict)  # {name of a point: waiting, running, done or failed}

    @property
    def folder(self) -> Path:
        return state_directory.state_root() / "studies" / self.study.name

    def title(self, point: StudyPoint) -> str:
        """For example `digits-strategies · cod · seed 0`."""
        return SEPARATOR.join((self.study.name, point.arm, f"seed {point.seed}"))

    def worktree(self, point: StudyPoint) -> Path:
        return self.folder / point.name

    def digest(self, point: StudyPoint) -> str:
        return hashlib.sha256((self.code_version + point.params).encode()).hexdigest()

    def record_file(self, point: StudyPoint) -> Path:
        return self.folder / f"{point.name}.json"

    def record(self, point: StudyPoint) -> dict[str, Any] | None:
        """The results of a finished point, unless they were computed with other code or parameters."""
        path = self.record_file(point)
        record: dict[str, Any] | None = read_json(path) if path.exists() else None
        return record if record is not None and record["digest"] == self.digest(point) else None

    @cached_property
    def unfinished(self) -> list[StudyPoint]:
        return [point for point in self.points if self.record(point) is None]

    @cached_property
    def shared_stages(self) -> dict[str, dict[str, str]]:
        """{name of a point: the keys of the stages that it may share with others}"""
        stages = Pipeline().stages
        return {point.name: study_grid.shared_stage_keys(point, stages) for point in self.points}

    def set_state(self, point: StudyPoint, state: str) -> None:
        self.states[point.name] = state
        write_json(self.folder / "states.json", self.states)
        for listener in listeners:
            listener(point, state)


def plan_study(name: str, overrides: Overrides | None = None) -> StudyPlan:
    """Read a study and check all of its points before anything runs."""
    study = study_grid.read_study(study_grid.find_study(name))
    worktrees.require_committed_code()
    points = study_grid.study_points(study, worktrees.committed_text("params.yaml"), overrides or {})
    plan = StudyPlan(study, points, worktrees.head_commit(), worktrees.code_version())
    check_arms(plan)
    return plan


def check_arms(plan: StudyPlan) -> None:
    """Validate the parameters of one point per arm. People are refused: each point would wait for its own labels."""
    first_points = {point.arm: point for point in reversed(plan.points)}
    paths = []
    for arm, point in first_points.items():
        if annotator_name(YAML(typ="safe", pure=True).load(point.params)) == "people":
            found = f"study {plan.study.name}: arm {arm}: annotate.annotator: found people"
            raise UserError(f"{found}, expected simulated: a study does not wait for labels")
        path = plan.folder / "checked" / f"arm {arm.replace('/', ' ')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(point.params, encoding="utf-8")
        paths.append(path)
    try:
        check_params(*paths)
    except CodlineError as error:
        raise type(error)(f"study {plan.study.name}: {error}") from error


def reported_error(output: str) -> str:
    """The last error sentence that a codline process printed, or an empty string."""
    lines = (line for line in reversed(output.splitlines()) if line.startswith("codline: "))
    return next(lines, "").removeprefix("codline: ")


@contextlib.contextmanager
def lock_study(plan: StudyPlan) -> Iterator[None]:
    """Let one process at a time run the study, with one fork server for the stages of all points."""
    busy = f"study {plan.study.name} is running already; wait for it or stop it"
    background = Background()
    with file_lock(plan.folder / "lock", busy):
        if plan.unfinished:
            background.start_server()
        try:
            yield
        finally:
            background.stop()


def write_results(plan: StudyPlan, draw: bool = False) -> None:
    """Write points.json and, from it in a separate process that may import numpy, the statistics and the figure."""
    records = [(point, plan.record(point)) for point in plan.points]
    content = {
        "study": plan.study.name,
        "title": plan.study.title,
        "commit": plan.commit,
        "reference": plan.study.reference_arm,
        "seeds": plan.study.seeds,
        "arms": [{"arm": arm, "overrides": changes} for arm, changes in plan.study.arm_overrides.items()],
        "points": [
            {key: record[key] for key in ("arm", "seed", "curve", "seconds")} | {"params": point.params}
            for point, record in records
            if record
        ],
    }
    write_json(plan.folder / "points.json", content)
    command = [sys.executable, "-m", "codline.report.study_figure", str(plan.folder), *(["--draw"] if draw else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = reported_error(done.stderr) or done.stderr.strip()[-200:]
        raise CodlineError(f"study {plan.study.name}: its results could not be summarised: {reason}")
