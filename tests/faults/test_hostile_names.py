"""Names of classes and files that are code elsewhere: they are shown as they are, and run nowhere."""

import json
import logging
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from codline.core.errors import DataError, UserError
from codline.core.files import write_json
from codline.data import tables
from codline.labeling.label_export import export_labels
from codline.labeling.originals import distinct_name
from codline.labeling.query_export import export_query
from codline.runtime import log
from tests.workspace import Workspace

CLASSES = [
    "<script>document.title='x'</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "[bold red]A[blink]",
    "=cmd|' /C calc'!A0",
    "$\\frac{x$ and $y",
    "'; touch x #",
    "`touch x`$(touch x)",
    "--help",
    "%s {0} \u202egnp.exe",
]


class Elements(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), set[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def hostile(workspace: Workspace) -> Workspace:
    """A campaign whose classes and files have such names."""
    path = workspace.path("prepare", "dataset")
    write_json(path, json.loads(path.read_text()) | {"classes": CLASSES})
    ids = tables.read_table(workspace.path("prepare", "pool"), tables.POOL)["id"].to_pylist()
    names = [f"{CLASSES[i % 10].replace('/', '')}/{CLASSES[i % 7].replace('/', '')}{i}.png" for i in range(len(ids))]
    tables.write_columns([ids, names], tables.FILES, workspace.path("prepare", "files"))
    for cycle in workspace.pipeline.cycles:
        workspace.run("evaluate", cycle)
    return workspace


def test_report_shows_hostile_names_and_runs_none(hostile: Workspace) -> None:
    hostile.run("report")
    found = Elements(Path("report/index.html"))
    assert not found.tags & {"script", "iframe", "object", "embed", "link"}
    assert not [name for name in found.attributes if name.startswith("on")]
    assert "&lt;script&gt;document.title" in Path("report/index.html").read_text()
    for drawing in Path("report").glob("*.svg"):  # which DVC's plots page shows
        elements = {element.tag.rpartition("}")[2] for element in ElementTree.parse(drawing).iter()}
        assert not elements & {"script", "foreignObject", "image", "img", "a"}


def test_query_page_shows_hostile_names_and_runs_none(hostile: Workspace) -> None:
    export_query(hostile.pipeline, "c1")
    found = Elements(Path("queries/c1/index.html"))
    assert not found.tags & {"script", "iframe", "object", "embed", "link"}
    assert found.attributes == {"lang", "charset", "href", "src", "alt", "loading"}


def test_export_writes_hostile_names_as_they_are_but_no_folder_outside_its_own(hostile: Workspace) -> None:
    with pytest.raises(DataError, match="expected a name that a folder can have"):
        export_labels(hostile.pipeline, Path("labels.csv"), Path("folder"))
    assert "=cmd|' /C calc'!A0" in Path("labels.csv").read_text()  # names are not changed (docs/decisions/0024)
    path = hostile.path("prepare", "dataset")
    for name in ("..", ".", "a/b", "/etc", "x" * 256):
        write_json(path, json.loads(path.read_text()) | {"classes": [name, *CLASSES[1:]]})
        with pytest.raises((DataError, UserError)):
            export_labels(hostile.pipeline, None, Path("folder"))
    assert not Path("folder").exists()


def test_distinct_name_stays_within_what_file_systems_allow() -> None:
    name = f"class/{'é' * 120}.jpeg"
    other = distinct_name(name, 2**63 - 1, {name})
    assert len(other.removeprefix("class/").encode()) <= 255
    assert other.endswith("-9223372036854775807.jpeg")


def test_warnings_and_errors_have_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("codline")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    log.show_warnings()
    logger.warning("%s: left out", "a\x1b[2J\nb\u202egnp\udce9.png")
    shown = "a\\x1b[2J\\nb\\u202egnp\\udce9.png"
    assert capsys.readouterr().err == f"codline: {shown}: left out\n"
    assert str(DataError("a\x1b[2J\nb\u202egnp\udce9.png")) == shown
