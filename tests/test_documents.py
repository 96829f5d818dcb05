"""The documents agree with the repository, and with each other. What the README tells to type is typed in tests/flows/test_readme.py."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codline.core import errors
from tests.documents import DOCUMENTS, README, blocks, links, tree, words
from tests.workspace import REPOSITORY


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert [link for link in links(document) if not (document.parent / link).exists()] == []


def test_the_tree_names_every_file_of_ours_and_no_other() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    parts = [Path(name).parts for name in listed.splitlines() if (REPOSITORY / name).is_file()]
    there = {
        (p[0], p[1] + ("/" if len(p) > 2 else ""))
        for p in parts
        if p[0] in ("flows", "stages", "codline") and p[-1] != "__init__.py"
    }
    named, room = set(), ""
    for line in tree().splitlines():
        if line.startswith("  "):
            names, _, _ = line.strip().partition("  ")
            named |= {(room, name) for name in names.split()}
        else:
            room = line.partition("/")[0]
    assert named == there


def test_every_file_at_the_root_that_the_tree_names_is_there() -> None:
    roots = [name for line in tree().partition("\n\n")[0].splitlines() for name in line.partition("  ")[0].split()]
    assert len(roots) > 5
    assert [name for name in roots if not (REPOSITORY / name).exists()] == []


def test_the_table_of_exit_codes_is_that_of_the_errors() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert told == {0, errors.CodlineError.exit_code, *errors.BY_EXIT_CODE, 143}  # and the shell's own of SIGTERM


def test_both_tables_of_words_are_the_same() -> None:
    assert words("CONTRIBUTING.md") == words("docs/architecture.md") != []


def test_the_citation_names_the_paper() -> None:
    (citation,) = blocks("bibtex")
    assert "Semi-Supervised Active Learning with Temporal Output Discrepancy" in citation


def test_no_document_holds_a_place_still_to_be_filled() -> None:
    assert [path.name for path in DOCUMENTS if re.search(r"@@|TODO[:(]|TBD", path.read_text(encoding="utf-8"))] == []


def test_the_numbers_of_readme_and_changelog_are_those_of_the_figure() -> None:
    data = json.loads((REPOSITORY / "docs/figures/digits.json").read_text(encoding="utf-8"))
    accuracy = {
        name: 100 / data["test"] * np.array([run["correct"] for run in data["runs"] if run["strategy"] == name])
        for name in ("cod", "random")
    }
    changelog = " ".join((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").split())
    for name, found in accuracy.items():
        cells = [
            f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in zip(found.mean(0), found.std(0, ddof=1), strict=True)
        ]
        assert f"| {name} | {' | '.join(cells)} |" in changelog
    ahead = accuracy["cod"].mean(1) - accuracy["random"].mean(1)
    better, worse = (ahead > 1e-9).sum(), (ahead < -1e-9).sum()
    summary = f"{ahead.mean():.1f} ± {ahead.std(ddof=1):.1f}"
    assert (
        f"cod is {summary} points ahead of random (better on {better} of the {len(ahead)} seeds, worse on {worse})"
        in " ".join(README.split())
    )
    assert (
        f"cod is {summary} ahead of random, seed by seed: better on {better}, equal on {len(ahead) - better - worse}, worse on {worse}."
        in changelog
    )
