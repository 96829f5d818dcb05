"""The plan of the paper's figures and tables: which campaigns an item needs, which are done, what the rest costs.

At one scale, a dataset has one study, and items share its arms: a campaign that one item has run is there for all.
"""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from codline.core.errors import CodlineError, UserError
from codline.core.files import write_json, write_text
from codline.orchestration import paper_data, presets
from codline.orchestration.paper_data import Sources
from codline.orchestration.params_file import dump, in_one_line, params_yaml
from codline.orchestration.study_grid import Study
from codline.orchestration.study_plan import StudyPlan, plan_points
from codline.paper.items import ITEMS, Item
from codline.paper.protocols import Scale, find_scale, protocols
from codline.paper.published import TITLES
from codline.runtime import state_directory


class Panel(NamedTuple):
    """One of the paper's datasets in a figure or table, and the dataset that is used for it at this scale."""

    dataset: str
    used: str | None  # None: there are no data for it
    missing: str = ""  # what to give then


class State(NamedTuple):
    """How far an item is, and what the rest costs."""

    done: int
    campaigns: int
    minutes: float  # of the campaigns that are not done, one after the other
    missing: list[str]  # a sentence for each of the paper's datasets that has no data
    missing_minutes: float  # of the campaigns that wait for data

    @property
    def text(self) -> str:
        if not self.campaigns:
            return "needs data" if self.missing else "ready"
        partly = " (some data missing)" if self.missing else ""
        if self.done == self.campaigns:
            return f"done{partly}"
        return (f"{self.done} of {self.campaigns}" if self.done else "not run") + partly


@dataclass
class PaperScale:
    """Everything that `codline paper` does at one scale with these data."""

    name: str
    sources: Sources
    plans: dict[str, StudyPlan] = field(default_factory=dict)  # by dataset, with all arms

    @cached_property
    def protocol(self) -> Scale:
        return find_scale(self.name)

    @property
    def folder(self) -> Path:
        return state_directory.state_root() / "paper" / self.name

    def panels(self, item: Item) -> list[Panel]:
        return [self.panel(dataset) for dataset in item.datasets]

    def panel(self, dataset: str) -> Panel:
        candidates = self.protocol.candidates(dataset)
        for name, each in candidates.items():
            if each.data == "embedded" or name in self.sources:
                return Panel(dataset, name)
        hints = [paper_data.missing_data(name, each) for name, each in candidates.items()]
        return Panel(dataset, None, ", or ".join(hints))

    def arms(self, items: Iterable[Item]) -> dict[str, list[str]]:
        """{dataset that is used: the arms that these items need of it}, in the order of protocols.yaml"""
        needed: dict[str, set[str]] = {}
        for item in items:
            for panel in self.panels(item):
                if panel.used:
                    needed.setdefault(panel.used, set()).update(item.arms)
        return {used: [arm for arm in protocols().arms if arm in arms] for used, arms in needed.items()}

    def study(self, used: str, arms: list[str]) -> Study:
        dataset = self.protocol.datasets[used]
        preset, all_arms = presets.resolve(dataset.preset), protocols().arms
        return Study(
            name=f"paper-{self.name}-{used}",
            title=f"{dataset.title}, for the paper's figures and tables",
            preset=dataset.preset,
            base=paper_data.dataset_overrides(used, dataset, self.sources) | dataset.base,
            cycles=self.protocol.cycles,
            arms={
                arm: all_arms[arm].overrides(self.protocol, preset, released_method(all_arms[arm].strategy))
                for arm in arms
            },
            seeds=self.protocol.seeds,
        )

    def write_study(self, study: Study) -> Path:
        """Write the study as a file that `codline study` runs, too."""
        path = self.folder / f"{study.name}.yaml"
        document = study.model_dump(exclude_none=True)
        write_text(path, dump(params_yaml(), {key: in_one_line(value) for key, value in document.items()}))
        return path

    def state(self, items: Iterable[Item]) -> State:
        """Of all campaigns that these items need, each counted once."""
        items = list(items)
        done, campaigns, minutes = 0, 0, 0.0
        for used, arms in self.arms(items).items():
            seconds = [record["seconds"] for record in self.finished(used, arms)]
            total = len(arms) * len(self.protocol.seeds)
            each = sum(seconds) / len(seconds) / 60 if seconds else self.protocol.datasets[used].minutes
            done, campaigns = done + len(seconds), campaigns + total
            minutes += (total - len(seconds)) * each
        return State(done, campaigns, minutes, *self.missing(items))

    def missing(self, items: list[Item]) -> tuple[list[str], float]:
        """A sentence for each of the paper's datasets without data, and the minutes of their campaigns."""
        arms: dict[str, set[str]] = {}
        for item in items:
            for panel in self.panels(item):
                if not panel.used:
                    arms.setdefault(panel.dataset, set()).update(item.arms)
        first = {dataset: next(iter(self.protocol.candidates(dataset).values())) for dataset in arms}
        minutes = sum(len(arms[name]) * len(self.protocol.seeds) * each.minutes for name, each in first.items())
        return [f"{TITLES[name]}: {self.panel(name).missing}" for name in arms], minutes

    def finished(self, used: str, arms: list[str]) -> list[dict[str, Any]]:
        """The finished campaigns of these arms: arm, seed, seconds, learning curve and folder."""
        if (plan := self.plan(used)) is None:
            return []
        found = [(plan.worktree(point), plan.record(point)) for point in plan.points if point.arm in arms]
        return [record | {"folder": str(worktree.resolve())} for worktree, record in found if record]

    def has_unlogged(self, items: Iterable[Item]) -> bool:
        """Whether MLflow has not been sent a campaign that is finished, for example because it could not be reached."""
        plans = {used: (self.plan(used), arms) for used, arms in self.arms(items).items()}
        return any(point.arm in arms for plan, arms in plans.values() if plan for point in plan.unlogged)

    def plan(self, used: str) -> StudyPlan | None:
        """The plan of a dataset's study with all arms; None if no campaign is finished, because it takes seconds."""
        folder = state_directory.state_root() / "studies" / f"paper-{self.name}-{used}"
        if used not in self.plans and any(folder.glob("*-s*.json")):
            self.plans[used] = plan_points(self.study(used, self.arms(drawable_items())[used]), {})
        return self.plans.get(used)

    def refuse_without_data(self, item: Item) -> None:
        panels = self.panels(item)
        if panels and not any(panel.used for panel in panels):
            raise UserError(f"paper {item.name}: no data for {TITLES[panels[0].dataset]}; {panels[0].missing}")

    def draw(self, items: list[Item]) -> None:
        """Draw items from the campaigns that are finished, in one other process, which may import numpy."""
        for item in items:
            write_json(self.item_folder(item) / "request.json", self.request(item))
        run_drawing("items", *map(self.item_folder, items))

    def item_folder(self, item: Item) -> Path:
        return self.folder / item.name

    def request(self, item: Item) -> dict[str, Any]:
        """What an item is drawn from; codline/paper/campaigns.py reads it."""
        records = {used: self.finished(used, arms) for used, arms in self.arms([item]).items()}
        panels = [
            {
                "dataset": panel.dataset,
                "used": panel.used or "",
                "description": self.protocol.datasets[panel.used].title if panel.used else "",
                "missing": panel.missing,
                "campaigns": records.get(panel.used or "", []),
            }
            for panel in self.panels(item)
        ]
        has_campaigns = bool(item.datasets)
        return {
            "item": item.name,
            "scale": self.name,
            "panels": panels,
            "presets": {} if has_campaigns else {name: presets.resolve(f"{name}-paper") for name in TITLES},
        }

    def write_page(self) -> Path:
        """One HTML page with all items that have been drawn at this scale."""
        run_drawing("page", self.folder)
        return self.folder / "index.html"


@cache
def released_method(strategy: str) -> dict[str, Any]:
    """The settings of a rival's released code, if presets/methods has them."""
    name = f"methods/{strategy}"
    is_rival = strategy != "cod" and presets.layer_file(name, presets.FOLDER).exists()
    return presets.merge_layers(presets.load_layers(name)) if is_rival else {}


def run_drawing(*arguments: object) -> None:
    command = [sys.executable, "-m", "codline.paper", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it was killed"])[-1].removeprefix("codline: ")
        raise CodlineError(f"paper: drawing failed: {reason}")


def drawable_items() -> list[Item]:
    return [item for item in ITEMS if not item.is_diagram]
