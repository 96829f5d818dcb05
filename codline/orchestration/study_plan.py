"""The plan of a study: its points, which of them are done, where their files are, and the results so far."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core.errors import CodlineError, UserError
from codline.core.files import read_json, write_json
from codline.core.locks import file_lock
from codline.orchestration import study_grid, worktrees
from codline.orchestration.params_file import check_inputs, derived_of_files, with_sections
from codline.orchestration.people_defaults import annotator_name
from codline.orchestration.study_grid import Overrides, Study, StudyPoint
from codline.runtime import state_directory
from codline.runtime.background import is_tracking
from codline.runtime.campaign_identity import SEPARATOR

PointListener = Callable[[StudyPoint, str], None]
listeners: list[PointListener] = []  # called with (point, its new state)
AT_POOL = " at "  # in the state of a point at a work pool: "pending at gpu", with Prefect's name of the state


@dataclass
class StudyPlan:
    """A study of the committed code."""

    study: Study
    points: list[StudyPoint]
    commit: str
    code_version: str
    states: dict[str, str] = field(default_factory=dict)  # {point: waiting, running, done, failed; AT_POOL}

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

    @property
    def unlogged(self) -> list[StudyPoint]:
        """Finished points that MLflow has not been sent, for example because it could not be reached."""
        if not is_tracking():
            return []
        done = [point for point in self.points if point not in self.unfinished]
        return [point for point in done if not self.logged_note(point).exists()]

    def logged_note(self, point: StudyPoint) -> Path:
        """Written by codline/tracking/study_log.py."""
        return self.worktree(point) / ".codline/logged/campaign.json"

    def set_state(self, point: StudyPoint, state: str) -> None:
        self.states[point.name] = state
        write_json(self.folder / "states.json", self.states, durable=False)
        for listener in listeners:
            listener(point, state)


def plan_study(name: str, overrides: Overrides | None = None) -> StudyPlan:
    """Read a study and check all of its points before anything runs."""
    study = study_grid.read_study(study_grid.find_study(name))
    worktrees.require_committed_code()
    return plan_points(study, overrides or {})


def plan_points(study: Study, overrides: Overrides) -> StudyPlan:
    """All points of a study with complete parameters, checked."""
    points = study_grid.study_points(study, worktrees.committed_text("params.yaml"), overrides)
    plan = StudyPlan(study, points, worktrees.head_commit(), worktrees.code_version())
    arms = {point.arm: point.params for point in reversed(points)}  # the first point of each
    derived = json.loads(check_arms(study.name, str(plan.folder / "checked"), tuple(arms.items())))
    plan.points = [point._replace(params=with_sections(point.params, derived[point.arm])) for point in points]
    return plan


@lru_cache(1)  # takes seconds; `codline study` and its flow both need it
def check_arms(study: str, folder: str, arms: tuple[tuple[str, str], ...]) -> str:
    """Validate the parameters of one point per arm. People are refused: each point would wait for its own labels.

    Returns, as JSON, {arm: the sections that `codline run` would derive from the others}.
    """
    paths = []
    for arm, text in arms:
        if annotator_name(YAML(typ="safe", pure=True).load(text)) == "people":
            found = f"study {study}: arm {arm}: annotate.annotator: found people"
            raise UserError(f"{found}, expected simulated: a study does not wait for labels")
        path = Path(folder, f"arm {arm.replace('/', ' ')}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    try:
        derived = dict(zip(dict(arms), derived_of_files(*paths), strict=True))
        for inputs in {json.dumps(sections["inputs"]) for sections in derived.values()}:
            check_inputs({"inputs": json.loads(inputs)})
    except CodlineError as error:
        raise type(error)(f"study {study}: {error}") from error
    return json.dumps(derived)


def lock_study(plan: StudyPlan) -> AbstractContextManager[None]:
    """Let one process at a time run the study."""
    return file_lock(plan.folder / "lock", f"study {plan.study.name} is running already; wait for it or stop it")


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
        reason = (done.stderr.strip().splitlines() or ["it was killed"])[-1].removeprefix("codline: ")
        raise CodlineError(f"study {plan.study.name}: its results could not be summarised: {reason}")
