"""README.md and docs/ agree with the repository and with each other. tests/flows/test_readme.py runs the commands."""

import importlib
import re
from pathlib import Path

import pytest

from codline.core import errors
from tests.documents import (
    DATASETS,
    DOCUMENTS,
    README,
    code_blocks,
    links,
    plugin_files,
    tree_paths,
    words_table,
)
from tests.workspace import REPOSITORY

CURRENT_DOCUMENTS = [path for path in DOCUMENTS if path.name not in ("CHANGELOG.md", "log.md")]  # those two are history
SIGTERM_EXIT_CODE = 143  # the shell's convention; no error class has it


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    assert [link for link in links(document) if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", CURRENT_DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_code_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:codline|stages|flows|tests|benchmarks|docs)/[\w/]+\.py\b", text))
    to_be_written = plugin_files(text).keys()
    assert [file for file in named - to_be_written if not (REPOSITORY / file).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_pages_that_everybody_reads_have_at_most_200_lines(name: str) -> None:
    assert len((REPOSITORY / name).read_text(encoding="utf-8").splitlines()) <= 200


def test_readme_tree_names_only_files_that_exist() -> None:
    assert [path for path in tree_paths() if not (REPOSITORY / path).exists()] == []


def test_readme_tree_names_every_package_and_every_file_of_flows_and_stages() -> None:
    packages = {f"codline/{init.parent.name}/" for init in (REPOSITORY / "codline").glob("*/__init__.py")}
    modules = {f"{folder}/{path.name}" for folder in ("flows", "stages") for path in (REPOSITORY / folder).glob("*.py")}
    inits = {"flows/__init__.py", "stages/__init__.py"}
    assert packages | modules - inits <= tree_paths()


def test_readme_exit_codes_are_those_of_the_errors() -> None:
    table = README.partition("## Exit codes")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    documented = {int(code) for cell in cells for code in cell.split(",")}
    assert documented == {0, errors.CodlineError.exit_code, *errors.BY_EXIT_CODE, SIGTERM_EXIT_CODE}


def test_words_are_the_same_in_contributing_and_architecture() -> None:
    assert words_table("CONTRIBUTING.md") == words_table("docs/architecture.md") != []


def test_readme_cites_the_paper() -> None:
    (citation,) = code_blocks("bibtex")
    assert "Semi-Supervised Active Learning with Temporal Output Discrepancy" in citation


def test_documents_have_no_placeholders() -> None:
    assert [path.name for path in DOCUMENTS if re.search(r"@@|TODO[:(]|TBD", path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("text", "name"), [(README, "Gini"), (DATASETS, "Mine")], ids=["strategy", "dataset"])
def test_documented_union_adds_one_plug_in_to_the_existing_ones(text: str, name: str) -> None:
    ((path, documented),) = [item for item in plugin_files(text).items() if item[0].endswith("__init__.py")]
    existing = (REPOSITORY / path).read_text(encoding="utf-8")
    assert union_members(documented) == union_members(existing) | {name}


def union_members(code: str) -> set[str]:
    return set(re.findall(r"\b[A-Z]\w*", code.partition("\nAny")[2]))


def test_page_of_the_evidence_is_generated_from_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "docs/evidence")
    page = importlib.import_module("tables").page()
    assert (REPOSITORY / "docs/evidence/README.md").read_text(encoding="utf-8") == page
