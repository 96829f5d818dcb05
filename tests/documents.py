"""Parts of README.md and docs/ that tests check: commands, code blocks, plug-ins to write, the tree, links, words."""

import re
from pathlib import Path

from tests.workspace import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DATASETS = (REPOSITORY / "docs/datasets.md").read_text(encoding="utf-8")
DOCUMENTS = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (REPOSITORY / "docs").rglob("*.md")
)
PROGRAMS = ("codline", "dvc", "git", "make", "prefect")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> set[str]:
    """The README's commands, from bash blocks (without comments) and from inline code."""
    lines = "".join(code_blocks("bash")).replace("\\\n", " ").splitlines()
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    spans = [span for span in re.findall(r"`([^`]+)`", prose) if span.split(" ")[0] in PROGRAMS and " " in span]
    return {" ".join(re.split(r"\s#", command)[0].split()) for command in [*lines, *spans]}


def plugin_files(text: str) -> dict[str, str]:
    """{path: code} of the plug-ins that a text explains how to write: a path in backquotes, then a block of Python."""
    return dict(re.findall(r"`(codline/\S+\.py)`(?:(?!```).)*```python\n(.*?)```", text, re.DOTALL))


def links(document: Path) -> list[str]:
    """Targets of the document's links into the repository, without anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    return [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")]


def tree_paths() -> set[str]:
    """Paths in the README's tree. Names are separated by one blank, and from their description by two."""
    (tree,) = code_blocks("text")
    paths, directory = set(), ""
    for line in tree.splitlines():
        names = re.split(r"\s{2,}", line.strip())[0].split()
        if not line.startswith(" "):
            directory = names[0] if names[0].endswith("/") else ""
            paths |= {*names}
        else:
            paths |= {directory + name for name in names}
    return paths


def words_table(document: str) -> list[str]:
    text = (REPOSITORY / document).read_text(encoding="utf-8").partition("## Words")[2]
    return re.findall(r"^\|.*\|$", text, re.MULTILINE)
