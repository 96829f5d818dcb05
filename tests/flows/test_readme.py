"""Every command of the README does what is said of it, in a user's clone with a small campaign: two cycles instead of seven."""

import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.core import params
from codline.datasets.digits import Digits
from tests.documents import blocks, commands, files_to_write
from tests.project import Project, free_port
from tests.workspace import REPOSITORY

pytestmark = pytest.mark.slow

PEOPLE = (
    "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}' -S prepare.start=30 -S select.budget=20"
    " -S 'annotate.annotator={name: people, answers: answers.csv}'"
)

# Typed as they stand where a campaign is finished: what each must say.
AS_THEY_STAND = {
    "codline run": "Everything is up to date.",
    "codline status": "Everything is up to date.",
    "codline presets": "cifar10-paper",
    "codline strategies": "least_confidence",
    "codline models": "resnet18",
    "codline datasets": "digits",
    "codline doctor": "What bytes may depend on",
    "codline track": "c2: up to date",
    "dvc repro": "Data and pipelines are up to date.",
    "dvc metrics show": "cycles/c2/metrics.json",
    "dvc plots show": "dvc_plots/index.html",
}


@pytest.mark.parametrize(("command", "answer"), AS_THEY_STAND.items())
def test_a_command_says_what_the_readme_promises(finished: Project, command: str, answer: str) -> None:
    assert answer in typed(finished, command)


def test_make_demo_and_make_test_come_down_to_commands_that_are_tested(finished: Project) -> None:
    """Not run for real: that would be these tests, within themselves."""
    assert typed(finished, "make demo", "-n").splitlines()[-1] == "codline run"
    assert typed(finished, "make test", "-n").splitlines()[-1] == "pytest -n 2 --dist worksteal"


def test_the_best_model_is_loaded_as_the_readme_says(finished: Project) -> None:
    (code,) = [block for block in blocks("python") if "mlflow" in block]
    said = finished.must("python", "-W", "ignore", "-c", f"{code}\nprint(probs.shape, probs.sum(1).round(6))")
    assert said.splitlines()[-1] == "(2, 10) [1. 1.]"


def test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed(untouched: Project) -> None:
    assert "Learning curve" in typed(
        untouched, "codline run --strategy entropy --seed 1 -S train.epochs=10", "--cycles", "1"
    )
    assert re.search(r"train\.epochs +2 +10", typed(untouched, "dvc params diff"))
    assert "Ran experiment" in typed(untouched, "dvc exp run -S train.epochs=30", "train@c1")
    assert params.load(untouched.root / "params.yaml")["train"]["epochs"] == 30
    typed(untouched, "dvc remote add --default storage ../codline-storage")
    assert re.search(r"\d+ files pushed", typed(untouched, "dvc push"))
    assert (untouched.root / "../codline-storage").is_dir()


def test_a_preset_can_be_run_or_only_written(untouched: Project) -> None:
    committed = params.load(REPOSITORY / "params.yaml")
    assert "Learning curve" in typed(untouched, "codline run --preset digits", "--cycles", "1", "-S", "train.epochs=1")
    ran = params.load(untouched.root / "params.yaml")
    assert ran["train"] == committed["train"] | {"epochs": 1}
    assert list(ran["cycles"]) == ["c1"]
    assert "params.yaml is written from the preset digits" in typed(untouched, "codline preset digits")
    assert params.load(untouched.root / "params.yaml") == committed
    assert "Ran experiment" in typed(untouched, "dvc exp run -S train.epochs=30".replace("30", "2"), "train@c1")


def test_the_pages_are_shown_until_they_are_stopped(project: Project) -> None:
    port = free_port()
    with started(project, "codline ui", "--port", str(port)) as process:
        until(lambda: "Ctrl-C stops both" in project.said)
        assert "MLflow" in page(f"http://127.0.0.1:{port}")
        prefect = project.environment["PREFECT_API_URL"].removesuffix("/api")
        assert "Prefect" in page(prefect)
        for address in (f"http://127.0.0.1:{port}", prefect):
            assert (
                page(address.replace("127.0.0.1", "127.0.0.2")) == ""
            )  # a server that listened everywhere would answer there too
    assert process.returncode == 0
    assert page(f"http://127.0.0.1:{port}") == ""


def test_the_flows_that_are_served_can_be_run_by_name(project: Project) -> None:
    """Also where they have been deployed to a pool before."""
    project.must("prefect", "work-pool", "create", "local", "--type", "process", "--overwrite")
    project.must("prefect", "--no-prompt", "deploy", "--all")
    before, metrics = project.lock, [project.root / f"cycles/{cycle}/metrics.json" for cycle in ("c1", "c2")]
    with started(project, "codline serve"):
        until(lambda: "cycle/local are served" in project.said)
        for path in metrics:
            path.unlink()
        typed(project, "prefect deployment run campaign/local --watch")
        assert all(path.exists() for path in metrics)
        metrics[1].unlink()
        typed(
            project, "prefect deployment run cycle/local -p cycle=c3 --watch".replace("c3", "c2")
        )  # the small campaign ends with c2
        assert metrics[1].exists()
    assert project.lock == before


def test_a_strategy_and_images_of_one_s_own_are_added_as_the_readme_says(untouched: Project) -> None:
    """Both in one campaign: each alone would cost another dozen stages."""
    for name, code in files_to_write().items():
        added(untouched.root / name, code)
    paint(untouched.root / "mine.npz")
    assert "gini" in typed(untouched, "codline strategies")
    assert re.search(
        r"\d+ passed",
        typed(
            untouched,
            "python -m pytest tests/contracts/test_every_strategy.py tests/contracts/test_every_dataset.py",
            "-k",
            "gini or mine",
        ),
    )
    assert "Learning curve" in typed(untouched, "codline run --strategy gini", "-S", "prepare.dataset.name=mine")
    assert "Everything is up to date." in typed(untouched, "codline run -S prepare.dataset.name=mine")
    chosen = params.load(untouched.root / "params.yaml")
    assert (chosen["score"]["strategy"], chosen["prepare"]["dataset"]) == ({"name": "gini"}, {"name": "mine"})
    assert '"cat"' in (untouched.root / "data/dataset.json").read_text()


def test_images_in_parquet_files_need_no_code(untouched: Project) -> None:
    raw = Digits().load(np.random.default_rng(0))
    for name, rows in {"train": slice(400), "test": slice(400, 500)}.items():
        files = [io.BytesIO() for _ in raw.labels[rows]]
        for file, image in zip(files, raw.images[rows], strict=True):
            Image.fromarray(image[0]).save(file, "png")
        table = pa.table(
            {"image": [file.getvalue() for file in files], "label": [f"digit {label}" for label in raw.labels[rows]]}
        )
        pq.write_table(table, untouched.root / f"{name}.parquet")
    assert "Learning curve" in typed(
        untouched,
        "codline run -S 'prepare.dataset={name: parquet, train: [train.parquet], test: [test.parquet]}'",
        "--cycles",
        "1",
    )
    assert '"digit 7"' in (untouched.root / "data/dataset.json").read_text()


def test_photographs_in_a_folder_per_class_come_to_a_report(untouched: Project) -> None:
    rng = np.random.default_rng(0)
    for row in range(40):
        photograph(untouched.root / "photos" / ("cat", "dog")[row % 2] / f"{row:02}.jpg", rng)
    assert "Learning curve" in typed(
        untouched, "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}'", "--cycles", "1"
    )
    assert '"dog"' in (untouched.root / "data/dataset.json").read_text()
    assert (untouched.root / "report/index.html").exists()


def test_photographs_without_labels_are_labeled_by_people(untouched: Project) -> None:
    rng = np.random.default_rng(0)
    for row in range(70):
        photograph(untouched.root / "photos" / ("cat", "dog", "")[row % 2 if row < 40 else 2] / f"{row:02}.jpg", rng)
    waits = untouched.run(*shlex.split(PEOPLE))
    assert waits.returncode == 3
    assert "answers.csv: 20 of the 20 images asked for have no label yet; `codline query c1` shows them" in waits.stderr
    assert "20 images are in queries/c1" in typed(untouched, "codline query c1")
    answers = untouched.root / "answers.csv"
    answers.write_text(answers.read_text().replace(",\n", ",cat\n"))
    assert "Learning curve" in typed(untouched, "codline run")
    assert (untouched.root / "report/index.html").exists()


def test_a_study_is_run_as_the_readme_says(untouched: Project) -> None:
    path = untouched.root / "studies/digits-strategies.yaml"
    path.write_text(path.read_text().replace("cycles: 4", "cycles: 1").replace("seeds: [0, 1, 2]", "seeds: [0]"))
    said = typed(untouched, "codline study digits-strategies")
    assert all(re.search(rf"{arm} +.*\d\d\.\d", said) for arm in ("random", "cod", "entropy"))
    assert (untouched.root / ".codline/studies/digits-strategies/results.csv").exists()


def typed(project: Project, command: str, *more: str) -> str:
    """What it says; `more` makes it small."""
    return project.must(*shlex.split(command), *more)


@contextlib.contextmanager
def started(project: Project, command: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Let it run until the block is over, and stop it as Ctrl-C does."""
    process = project.start(*shlex.split(command), *more)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)


def added(path: Path, code: str) -> None:
    """A new file is written; in a family's __init__.py the imports are added, and the union takes the place of the old one."""
    if path.name == "__init__.py":
        docstring, _, rest = path.read_text(encoding="utf-8").partition("\n")
        imports, _, union = code.partition("\nAny")
        kept = "\n".join(line for line in rest.partition("\nAny")[0].splitlines() if line not in imports.splitlines())
        code = f"{docstring}\n{imports}\n{kept}\n\nAny{union}"
    path.write_text(code, encoding="utf-8")


def paint(file: Path) -> None:
    """Forty images of noise in which every brightness is as frequent: their mean and deviation are known."""
    rng = np.random.default_rng(0)
    ramp = np.arange(32 * 32, dtype=np.uint16).astype(np.uint8)
    np.savez(
        file,
        images=np.stack([rng.permutation(ramp).reshape(32, 32) for _ in range(120)]).reshape(40, 3, 32, 32),
        labels=np.arange(40) % 2,
    )


def photograph(file: Path, rng: np.random.Generator) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 256, (6, 6, 3), np.uint8)
    Image.fromarray(pixels).resize((int(rng.integers(90, 200)), 120)).save(file)


def page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            text: str = reply.read().decode()
            return text
    except OSError:
        return ""


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it did not come up"
        time.sleep(0.5)


# Typed within a test of their own, with what makes them small: which one.
ELSEWHERE: dict[str, Callable[..., object]] = {
    "codline study digits-strategies": test_a_study_is_run_as_the_readme_says,
    "codline run -S 'prepare.dataset={name: parquet, train: [train.parquet], test: [test.parquet]}'": test_images_in_parquet_files_need_no_code,
    "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}'": test_photographs_in_a_folder_per_class_come_to_a_report,
    "codline query c1": test_photographs_without_labels_are_labeled_by_people,
    "make demo": test_make_demo_and_make_test_come_down_to_commands_that_are_tested,
    "make test": test_make_demo_and_make_test_come_down_to_commands_that_are_tested,
    "codline run --strategy entropy --seed 1 -S train.epochs=10": test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed,
    "codline run --preset digits": test_a_preset_can_be_run_or_only_written,
    "codline preset digits": test_a_preset_can_be_run_or_only_written,
    "dvc params diff": test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed,
    "dvc exp run -S train.epochs=30": test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed,
    "dvc remote add --default storage ../codline-storage": test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed,
    "dvc push": test_a_campaign_with_other_parameters_can_be_run_compared_and_pushed,
    "codline ui": test_the_pages_are_shown_until_they_are_stopped,
    "codline serve": test_the_flows_that_are_served_can_be_run_by_name,
    "prefect deployment run campaign/local --watch": test_the_flows_that_are_served_can_be_run_by_name,
    "prefect deployment run cycle/local -p cycle=c3 --watch": test_the_flows_that_are_served_can_be_run_by_name,
    "codline run -S prepare.dataset.name=mine": test_a_strategy_and_images_of_one_s_own_are_added_as_the_readme_says,
    "codline run --strategy gini": test_a_strategy_and_images_of_one_s_own_are_added_as_the_readme_says,
}


def test_every_command_of_the_readme_is_tried() -> None:
    assert sorted(commands()) == sorted([*AS_THEY_STAND, *ELSEWHERE, PEOPLE])


@pytest.mark.parametrize(("command", "test"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_a_command_tried_elsewhere_is_spelled_there(command: str, test: Callable[..., object]) -> None:
    assert f'"{command}"' in inspect.getsource(test)
