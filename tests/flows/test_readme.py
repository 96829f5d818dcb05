"""The README's commands and the plug-ins that it and docs/datasets.md explain, in a clone with a small campaign."""

import contextlib
import inspect
import io
import json
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
from codline.core.errors import WaitingForPeople
from codline.datasets.digits import Digits
from tests.documents import DATASETS, README, code_blocks, commands, plugin_files
from tests.flows.test_deployments import post
from tests.project import Project, free_port
from tests.workspace import REPOSITORY

pytestmark = pytest.mark.slow

# Commands that run unchanged where a campaign is finished, and part of what each prints.
ON_FINISHED_CAMPAIGN = {
    "codline run": "Everything is up to date.",
    "codline status": "Everything is up to date.",
    "codline presets": "cifar10-paper",
    "codline strategies": "least_confidence",
    "codline models": "resnet18",
    "codline datasets": "digits",
    "codline paper": "gradient-norms",
    "codline paper proofs": "Theorem 1",
    "codline doctor": "What bytes may depend on",
    "codline track": "c2: up to date",
    "codline verify": "Files that dvc.lock names",
    "codline clean": "What takes up space",
    "codline clean cache": "cache: 0 bytes removed",
    "dvc repro": "Data and pipelines are up to date.",
    "dvc metrics show": "cycles/c2/metrics.json",
    "dvc plots show": "dvc_plots/index.html",
}


@pytest.mark.parametrize(("command", "output"), ON_FINISHED_CAMPAIGN.items(), ids=list(ON_FINISHED_CAMPAIGN))
def test_command_works_on_a_finished_campaign(finished: Project, tmp_path: Path, command: str, output: str) -> None:
    """On a copy: two test workers would wait for each other's lock of DVC."""
    assert output in run_command(finished.copy_to(tmp_path / "codline"), command)


def test_make_demo_and_make_test_end_with_commands_that_are_tested(finished: Project) -> None:
    """Printed, not run: `make test` would run this test."""
    assert run_command(finished, "make demo", "-n").splitlines()[-1] == "codline run"
    assert run_command(finished, "make test", "-n").splitlines()[-1] == "pytest -n 2 --dist worksteal"


def test_mlflow_loads_the_best_model_by_its_alias(finished: Project) -> None:
    (code,) = [block for block in code_blocks("python") if "mlflow" in block]
    output = finished.must("python", "-W", "ignore", "-c", f"{code}\nprint(probs.shape, probs.sum(1).round(6))")
    assert output.splitlines()[-1] == "(2, 10) [1. 1.]"


def test_dvc_artifacts_get_fetches_the_tagged_best_model(project: Project) -> None:
    project.must("git", "add", "dvc.lock")
    project.must("git", "commit", "-qm", "results")
    run_command(project, 'git tag -a best@v1.0.0 -m "digits, 519 labels"')
    run_command(project, "dvc artifacts get . best")
    assert (project.root / "best.safetensors").read_bytes() == (project.root / "models/best.safetensors").read_bytes()


def test_dvc_exp_run_and_dvc_push_work_after_a_run_with_changed_parameters(untouched: Project) -> None:
    command = "codline run --strategy entropy --seed 1 -S train.epochs=10"
    assert "Learning curve" in run_command(untouched, command, "--cycles", "1")
    assert params.read_yaml(untouched.root / "params.yaml")["train"]["epochs"] == 10
    assert "Ran experiment" in run_command(untouched, "dvc exp run -S train.epochs=30", "train@c1")
    assert params.read_yaml(untouched.root / "params.yaml")["train"]["epochs"] == 30
    run_command(untouched, "dvc remote add --default storage ../codline-storage")
    assert re.search(r"\d+ files pushed", run_command(untouched, "dvc push"))
    assert (untouched.root / "../codline-storage").is_dir()


def test_preset_can_be_run_or_only_written(untouched: Project) -> None:
    committed = params.read_yaml(REPOSITORY / "params.yaml")
    small = ("--cycles", "1", "-S", "train.epochs=1")
    assert "Learning curve" in run_command(untouched, "codline run --preset digits", *small)
    used = params.read_yaml(untouched.root / "params.yaml")
    assert used["train"] == committed["train"] | {"epochs": 1}
    assert list(used["cycles"]) == ["c1"]
    assert "params.yaml is written from the preset digits" in run_command(untouched, "codline preset digits")
    assert params.read_yaml(untouched.root / "params.yaml") == committed
    assert "Ran experiment" in run_command(untouched, "dvc exp run -S train.epochs=2", "train@c1")


def test_codline_ui_serves_both_pages_on_loopback_until_it_is_stopped(project: Project) -> None:
    port = free_port()
    with running(project, "codline ui", "--port", str(port)) as process:
        wait_until(lambda: "Ctrl-C stops both" in project.output)
        mlflow, prefect = f"http://127.0.0.1:{port}", project.environment["PREFECT_API_URL"].removesuffix("/api")
        (entrance,) = re.findall(rf"{mlflow}/\S+", project.output)
        assert "url=/#/experiments/" in fetch_page(entrance)
        assert "Prefect" in fetch_page(prefect)
        for address in (mlflow, prefect):  # a server that listens on every address would answer there too
            assert fetch_page(address.replace("127.0.0.1", "127.0.0.2")) == ""
    assert process.returncode == 0
    assert fetch_page(mlflow) == ""


def test_codline_serve_deployments_run_by_name(project: Project) -> None:
    lock, metrics = project.lock, [project.root / f"cycles/{cycle}/metrics.json" for cycle in ("c1", "c2")]
    with running(project, "codline serve"):
        wait_until(lambda: "cycle/local are served" in project.output)
        for path in metrics:
            path.unlink()
        run_command(project, "prefect deployment run campaign/local --watch")
        assert all(path.exists() for path in metrics)
        metrics[1].unlink()
        command = "prefect deployment run cycle/local -p cycle=c3 --watch"
        run_command(project, command.replace("c3", "c2"))  # the last cycle of the small campaign
        assert metrics[1].exists()
    assert project.lock == lock


def test_plug_ins_that_are_added_as_documented_run(untouched: Project) -> None:
    """A strategy (README) and a dataset (docs/datasets.md) in one campaign, because a campaign takes long."""
    for name, code in (plugin_files(README) | plugin_files(DATASETS)).items():
        add_plugin_code(untouched.root / name, code)
    write_npz_dataset(untouched.root / "mine.npz")
    assert "gini" in run_command(untouched, "codline strategies")
    contracts = ("tests/contracts/test_every_strategy.py", "tests/contracts/test_every_dataset.py")
    assert re.search(r"\d+ passed", run_command(untouched, "python -m pytest", *contracts, "-k", "gini or mine"))
    output = run_command(untouched, "codline run --strategy gini", "-S", "prepare.dataset.name=mine")
    assert "Learning curve" in output
    assert "Everything is up to date." in run_command(untouched, "codline run -S prepare.dataset.name=mine")
    used = params.read_yaml(untouched.root / "params.yaml")
    assert (used["score"]["strategy"], used["prepare"]["dataset"]) == ({"name": "gini"}, {"name": "mine"})
    assert '"cat"' in (untouched.root / "data/dataset.json").read_text()


def test_parquet_files_with_encoded_images_are_a_dataset(untouched: Project) -> None:
    raw = Digits().load(np.random.default_rng(0))
    for name, rows in {"train": slice(400), "test": slice(400, 500)}.items():
        images = [encode_png(image[0]) for image in raw.images[rows]]
        table = pa.table({"image": images, "label": [f"digit {label}" for label in raw.labels[rows]]})
        pq.write_table(table, untouched.root / f"{name}.parquet")
    command = "codline run -S 'prepare.dataset={name: parquet, train: [train.parquet], test: [test.parquet]}'"
    assert "Learning curve" in run_command(untouched, command, "--cycles", "1")
    assert '"digit 7"' in (untouched.root / "data/dataset.json").read_text()


def test_folder_with_a_subfolder_per_class_is_a_dataset(untouched: Project) -> None:
    rng = np.random.default_rng(0)
    for row in range(40):
        write_photo(untouched.root / "photos" / ("cat", "dog")[row % 2] / f"{row:02}.jpg", rng)
    command = "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}'"
    assert "Learning curve" in run_command(untouched, command, "--cycles", "1")
    assert '"dog"' in (untouched.root / "data/dataset.json").read_text()
    assert (untouched.root / "report/index.html").exists()


def test_images_without_labels_are_labeled_by_people(untouched: Project) -> None:
    rng = np.random.default_rng(0)
    for row in range(70):
        folder = ("cat", "dog")[row % 2] if row < 40 else ""
        write_photo(untouched.root / "photos" / folder / f"{row:02}.jpg", rng)
    command = "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}' -S select.budget=20"
    command += " -S 'annotate.annotator={name: people}'"
    assert command in commands()
    stopped = untouched.run(*shlex.split(command))
    assert stopped.returncode == WaitingForPeople.exit_code
    expected = "answers/c1.csv: 20 of 20 images have no label yet; label the images in queries/c1"
    assert expected in stopped.stderr
    assert len([path for path in (untouched.root / "queries/c1").iterdir() if path.suffix != ".html"]) == 20
    check_states(untouched, stopped.stderr)
    assert "20 images are in queries/c1" in run_command(untouched, "codline query c1")
    answers = untouched.root / "answers/c1.csv"
    header, *rows = answers.read_text().splitlines()
    assert header == "file,label,id"
    write_labels(answers, rows, ["cat"] * 12 + [""] * 8)
    todo = "c1: 8 of 20 images in queries/c1 have no label yet; fill in the column `label` of answers/c1.csv"
    assert f"{todo}, then codline run\n" in run_command(untouched, "codline status")
    repro = untouched.run("dvc", "repro")
    assert repro.stderr.count("codline: ") == 1
    assert "codline: annotate@c1: answers/c1.csv: 8 of 20 images have no label yet; label the images" in repro.stderr
    assert "exited with 8" in repro.stderr
    write_labels(answers, rows, ["cta"] * 3 + ["cat"] * 17)
    refused = untouched.run("codline", "run")
    assert refused.returncode == 3
    assert refused.stderr.count("found the label 'cta'; did you mean cat?") == 3
    write_labels(answers, rows, ["cat"] * 20)
    assert "Learning curve" in run_command(untouched, "codline run")
    assert (untouched.root / "report/index.html").exists()
    write_labels(answers, rows, ["dog"] + ["cat"] * 19)
    stale = json.loads(untouched.must("dvc", "status", "--json"))
    assert [name for name, changes in stale.items() if "answers/c1.csv" in str(changes)] == ["annotate@c1"]
    assert list(stale) == ["annotate@c1"]
    run_command(untouched, "codline run")
    history = (untouched.root / "answers/history.csv").read_text().splitlines()
    assert history[-1].endswith(",dog,people,cat")
    run_command(untouched, "codline export labels.csv")
    assert (untouched.root / "labels.csv").read_text().count(",people,c1,") == 20


def check_states(project: Project, output: str) -> None:
    """A campaign that waits for people is complete for Prefect, and so are its cycle and the stage."""
    waiting = {"state": {"name": {"any_": ["WaitingForPeople"]}}}
    flows = post(project, "flow_runs/filter", {"flow_runs": waiting, "sort": "START_TIME_DESC"})[:2]
    tasks = post(project, "task_runs/filter", {"task_runs": waiting, "sort": "EXPECTED_START_TIME_DESC"})[:1]
    assert {run["name"].rpartition(" · ")[2] for run in flows + tasks} == {"c1", "seed 0", "annotate@c1"}
    assert all(run["state"]["type"] == "COMPLETED" and run["state"]["message"] in output for run in flows + tasks)


def write_labels(path: Path, rows: list[str], labels: list[str]) -> None:
    """Fill in the second column of an answer sheet."""
    cells = [row.split(",") for row in rows]
    lines = [f"{file},{label},{image_id}" for (file, _, image_id), label in zip(cells, labels, strict=True)]
    path.write_text("\n".join(["file,label,id", *lines]) + "\n")


def test_study_prints_a_row_per_arm_and_writes_its_results(untouched: Project) -> None:
    path = untouched.root / "studies/digits-strategies.yaml"
    path.write_text(path.read_text().replace("cycles: 4", "cycles: 1").replace("seeds: [0, 1, 2]", "seeds: [0]"))
    output = run_command(untouched, "codline study digits-strategies")
    assert all(re.search(rf"{arm} +.*\d\d\.\d", output) for arm in ("random", "cod", "entropy"))
    assert (untouched.root / ".codline/studies/digits-strategies/results.csv").exists()


def run_command(project: Project, command: str, *more: str) -> str:
    """Run a command of the README and return its output; `more` are arguments that shorten it."""
    return project.must(*shlex.split(command), *more)


@contextlib.contextmanager
def running(project: Project, command: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command during the block, then stop it as Ctrl-C does."""
    process = project.start(*shlex.split(command), *more)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)


def add_plugin_code(path: Path, code: str) -> None:
    """Write a new module; in a package's __init__.py, add the imports and replace the union, which comes last."""
    if path.name == "__init__.py":
        docstring, _, rest = path.read_text(encoding="utf-8").partition("\n")
        before_union, _, _ = rest.partition("\nAny")
        imports, _, union = code.partition("\nAny")
        code = f"{docstring}\n{imports}\n{before_union}\nAny{union}"
    path.write_text(code, encoding="utf-8")


def write_npz_dataset(file: Path) -> None:
    """Forty images of noise in which every brightness is equally frequent: mean and deviation are known."""
    rng = np.random.default_rng(0)
    ramp = np.arange(32 * 32, dtype=np.uint16).astype(np.uint8)
    channels = np.stack([rng.permutation(ramp).reshape(32, 32) for _ in range(120)])
    np.savez(file, images=channels.reshape(40, 3, 32, 32), labels=np.arange(40) % 2)


def encode_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def write_photo(file: Path, rng: np.random.Generator) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 256, (6, 6, 3), np.uint8)
    Image.fromarray(pixels).resize((int(rng.integers(90, 200)), 120)).save(file)


def fetch_page(address: str) -> str:
    """The page at the address, or nothing if nobody answers."""
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            text: str = reply.read().decode()
            return text
    except OSError:
        return ""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it has not started"
        time.sleep(0.5)


# The other commands of the README, and the tests that run them.
IN_TESTS: dict[Callable[..., object], list[str]] = {
    test_make_demo_and_make_test_end_with_commands_that_are_tested: ["make demo", "make test"],
    test_dvc_artifacts_get_fetches_the_tagged_best_model: [
        'git tag -a best@v1.0.0 -m "digits, 519 labels"',
        "dvc artifacts get . best",
    ],
    test_dvc_exp_run_and_dvc_push_work_after_a_run_with_changed_parameters: [
        "codline run --strategy entropy --seed 1 -S train.epochs=10",
        "dvc exp run -S train.epochs=30",
        "dvc remote add --default storage ../codline-storage",
        "dvc push",
    ],
    test_preset_can_be_run_or_only_written: ["codline run --preset digits", "codline preset digits"],
    test_codline_ui_serves_both_pages_on_loopback_until_it_is_stopped: ["codline ui"],
    test_codline_serve_deployments_run_by_name: [
        "codline serve",
        "prefect deployment run campaign/local --watch",
        "prefect deployment run cycle/local -p cycle=c3 --watch",
    ],
    test_plug_ins_that_are_added_as_documented_run: ["codline run --strategy gini"],
    test_parquet_files_with_encoded_images_are_a_dataset: [
        "codline run -S 'prepare.dataset={name: parquet, train: [train.parquet], test: [test.parquet]}'"
    ],
    test_folder_with_a_subfolder_per_class_is_a_dataset: [
        "codline run -S 'prepare.dataset={name: folder, path: photos, size: 64}'"
    ],
    test_images_without_labels_are_labeled_by_people: ["codline query c1", "codline export labels.csv"],
    test_study_prints_a_row_per_arm_and_writes_its_results: ["codline study digits-strategies"],
}


def test_every_command_of_the_readme_is_run_by_a_test() -> None:
    (with_people,) = [command for command in commands() if "name: people" in command]  # its test looks it up
    assert commands() - {with_people} == {*ON_FINISHED_CAMPAIGN, *(c for listed in IN_TESTS.values() for c in listed)}


@pytest.mark.parametrize("test", IN_TESTS, ids=lambda test: test.__name__)
def test_command_is_in_the_source_of_its_test(test: Callable[..., object]) -> None:
    source = inspect.getsource(test).replace("'", '"')
    assert [command for command in IN_TESTS[test] if f'"{command}"'.replace("'", '"') not in source] == []
