"""`codline paper`: the list, and one sentence for each mistake; tests/flows/test_paper.py runs it."""

import re
from pathlib import Path

import pytest

from codline.cli.paper import cost_text, duration
from codline.paper.items import ITEMS
from tests.project import Project, clone_with_small_campaign, make_once


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A clone in which nothing has run. Shared by all test workers: nothing here gets as far as a campaign."""

    def make(folder: Path) -> None:
        clone_with_small_campaign(folder / "codline")

    return Project(make_once(tmp_path_factory, "paper", make) / "codline", CODLINE_TRACKING="off")


def test_list_names_every_item_with_its_state_at_every_scale(clone: Project) -> None:
    lines = clone.with_environment(COLUMNS="80").must("codline", "paper").splitlines()
    described = [" ".join(line.split()) for line in lines]
    assert [text for item in ITEMS if (text := f"{item.name} ({item.place}): {item.about}") not in described] == []
    states = described[described.index("per-class (Figure 11): accuracy of each class of CIFAR-10 over the cycles") + 1]
    assert re.fullmatch(r"smoke: not run, 1 min small: needs data, \d+ min paper: needs data, 7\.5 h", states)


def test_list_fits_80_columns(clone: Project) -> None:
    assert max(map(len, clone.with_environment(COLUMNS="80").must("codline", "paper").splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["clasification"], "paper: unknown item 'clasification'; did you mean classification or class-iou?"),
        (["time", "--scale", "smal"], "--scale: unknown scale 'smal'; did you mean small?"),
        (["time"], "paper time: no data for CIFAR-10; give --data cifar10=FOLDER or --data cifar10=download"),
        (["sampler"], "paper sampler: Figure 2 is a diagram of sampling by COD; docs/method.md has ours"),
        (["time", "--all"], "paper: found the item time and --all, expected one of them"),
        (
            ["per-class", "--scale", "paper", "--data", "cifar10=download"],
            "paper: 3 of 3 campaigns to run, about 7.5 h of one GPU; add --yes to run them",
        ),
    ],
)
def test_mistake_is_one_sentence(clone: Project, words: list[str], sentence: str) -> None:
    done = clone.run("codline", "paper", *words)
    assert (done.returncode, done.stderr) == (2, f"codline: {sentence}\n")


def test_costs_are_times_that_people_read() -> None:
    assert [duration(minutes) for minutes in (0.2, 89, 90, 3000)] == ["1 min", "89 min", "1.5 h", "2 days"]
    assert cost_text(120, "core", 2) == "about 60 min with 2 at a time"
    assert cost_text(600, "GPU", 2) == "about 10.0 h of one GPU"
