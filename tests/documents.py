"""What README.md and its kin say, in pieces that tests can try."""

import re
from pathlib import Path

from tests.workspace import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (REPOSITORY / "docs").rglob("*.md")
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every line of the bash blocks, without what stands behind #."""
    lines = [re.split(r"\s+#", line)[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line]


def files_to_write() -> dict[str, str]:
    """{path: code} of the recipes: a path in backquotes, then what to put there."""
    return dict(re.findall(r"`(codline/\S+\.py)`(?:(?!```).)*```python\n(.*?)```", README, re.DOTALL))


def links(document: Path) -> list[str]:
    """Where its links within the repository lead, without anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    return [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")]


def tree() -> str:
    (found,) = blocks("text")
    return found


def words(document: str) -> list[str]:
    text = (REPOSITORY / document).read_text(encoding="utf-8").partition("## Words")[2]
    return re.findall(r"^\|.*\|$", text, re.MULTILINE)
