"""A folder of photographs that people label, while files are added, renamed, copied and removed between the runs."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from codline.core.errors import WaitingForPeople
from codline.core.files import file_sha256
from codline.labeling.originals import content_id
from tests.flows.test_readme import write_photo
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Labels = dict[int, str]
DATASET = "prepare.dataset={name: folder, path: photos, size: 16}"
PEOPLE = "annotate.annotator={name: people}"
BUDGET = 8


def image_id(path: Path) -> int:
    return content_id(file_sha256(path))


def true_label(identity: int) -> str:
    return ("cat", "dog")[identity % 2]


def take_photos(folder: Path, first: int, count: int, labeled: bool) -> None:
    for number in range(first, first + count):
        path = folder / f"IMG_{number:03}.jpg"
        write_photo(path, np.random.default_rng(number))
        if labeled:
            (folder / true_label(image_id(path))).mkdir(exist_ok=True)
            path.rename(folder / true_label(image_id(path)) / path.name)


def read_sheet(project: Project, cycle: str) -> list[dict[str, str]]:
    with (project.root / f"answers/{cycle}.csv").open() as file:
        return list(csv.DictReader(file))


def answer(project: Project, cycle: str, mistakes: Labels) -> None:
    rows = [
        f"{row['file']},{row['label'] or mistakes.get(int(row['id']), true_label(int(row['id'])))},{row['id']}"
        for row in read_sheet(project, cycle)
    ]
    (project.root / f"answers/{cycle}.csv").write_text("\n".join(["file,label,id", *rows]) + "\n")


def run_and_wait_for(project: Project, cycle: str, *words: str) -> str:
    done = project.run("codline", "run", *words)
    assert done.returncode == WaitingForPeople.exit_code
    assert f"annotate@{cycle}: answers/{cycle}.csv: {BUDGET} of {BUDGET} images have no label yet" in done.stderr
    return done.stdout + done.stderr


def check_labels(project: Project, mistakes: Labels) -> dict[int, str]:
    """Every exported label is that of the picture under the exported name; returns {id: split}."""
    project.must("codline", "export", "labels.csv")
    with (project.root / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        identity = image_id(project.root / "photos" / row["file"])
        assert identity == int(row["id"])
        assert row["label"] in ("", mistakes.get(identity, true_label(identity)))
    names = {str(path.relative_to(project.root / "photos")) for path in (project.root / "photos").rglob("*.jpg")}
    assert {row["file"] for row in rows} == names
    return {int(row["id"]): row["split"] for row in rows}


def changed_stages(project: Project) -> set[str]:
    """Stale stages of the first cycle and before it; those of later ones have not run yet."""
    stale = json.loads(project.must("dvc", "status", "--json"))
    return {name for name in stale if not name.endswith(("@c2", "@c3"))}


def test_labels_stay_on_their_photographs_and_no_question_is_asked_twice(untouched: Project) -> None:
    photos = untouched.root / "photos"
    photos.mkdir()
    take_photos(photos, 0, 60, labeled=True)
    take_photos(photos, 100, 40, labeled=False)
    options = ("-S", DATASET, "-S", PEOPLE, "-S", f"select.budget={BUDGET}", "--cycles", "3")
    run_and_wait_for(untouched, "c1", *options)
    first, second, third, *_ = (row["file"] for row in read_sheet(untouched, "c1"))
    wrong = image_id(photos / third)
    mistakes = {wrong: "dog" if true_label(wrong) == "cat" else "cat"}
    answer(untouched, "c1", mistakes)
    run_and_wait_for(untouched, "c2")
    before, sheet = check_labels(untouched, mistakes), (untouched.root / "answers/c1.csv").read_bytes()

    (photos / first).rename(photos / "cat or dog.jpg")
    shutil.copy(next((photos / "cat").iterdir()), photos / "copy.jpg")
    take_photos(photos, 200, 5, labeled=False)
    assert changed_stages(untouched) == {"scan@images"}
    assert "photos: images with several names (identical files) are used once each (1): " in run_and_wait_for(
        untouched, "c2"
    )
    assert changed_stages(untouched) == set()
    after = check_labels(untouched, mistakes)
    assert len(after) == len(before) + 5
    assert {i: after[i] for i in before} == before
    assert (untouched.root / "answers/c1.csv").read_bytes() == sheet

    removed = image_id(photos / second)
    (photos / second).unlink()
    right = true_label(wrong)
    text = sheet.decode().replace(f",{mistakes[wrong]},{wrong}\n", f",{right},{wrong}\n")
    (untouched.root / "answers/c1.csv").write_text(text)
    assert changed_stages(untouched) == {"scan@images", "annotate@c1"}
    assert "answers/c1.csv: 1 label is not used, of images that are not in the pool" in run_and_wait_for(
        untouched, "c2"
    )
    assert check_labels(untouched, {}) == {i: split for i, split in after.items() if i != removed}
    assert (untouched.root / "answers/c1.csv").read_text() == text

    answer(untouched, "c2", {})
    untouched.must("codline", "run")
    check_labels(untouched, {})
    history = (untouched.root / "answers/history.csv").read_text()
    assert f"c1,{wrong},{third},{right},people,{mistakes[wrong]}\n" in history
