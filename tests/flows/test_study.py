"""A study: every point a campaign of its own, what they share made once, killed and gone on with, refused whole or run whole."""

import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from codline.core.errors import BusyError, TrainingError, UserError
from codline.core.files import read_json
from codline.orchestration import study_grid, worktrees
from codline.orchestration.study_grid import Point
from flows import study
from stages.__main__ import check
from tests.project import Project, cloned, killed, once, survivors
from tests.workspace import REPOSITORY

TINY = """
name: tiny
title: Two strategies
base: {train.epochs: 1, train.objective: {name: none}}
cycles: 2
axes: {score.strategy.name: [random, entropy]}
seeds: [0, 1]
"""
PARAMS = (REPOSITORY / "params.yaml").read_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    return tmp_path


def written(text: str, name: str = "tiny") -> study_grid.Study:
    path = Path("studies", f"{name}.yaml")
    path.write_text(text)
    return study_grid.read(study_grid.found(name))


def points(text: str, **overrides: object) -> list[Point]:
    return study_grid.points(written(text), PARAMS, {key.replace("__", "."): value for key, value in overrides.items()})


def test_points_are_arms_times_seeds_with_their_params_complete(here: Path) -> None:
    found = points(TINY)
    assert [point.name for point in found] == ["random-s0", "entropy-s0", "random-s1", "entropy-s1"]
    raw = study_grid.YAML(typ="safe").load(found[3].params)
    assert (raw["seed"], raw["score"]["strategy"], raw["train"]["objective"]) == (
        1,
        {"name": "entropy"},
        {"name": "none"},
    )
    assert (raw["train"]["epochs"], list(raw["cycles"]), list(raw["queries"])) == (1, ["c1", "c2"], ["c1"])
    assert raw["train"]["batch_size"] == 32


def test_axes_are_combined_and_arms_are_named_after_their_values(here: Path) -> None:
    axes = "axes: {score.strategy.name: [random, cod], train.objective: [{name: none}, {name: ema, weight: 0.1}], train.epochs: [1]}"
    arms = list(written(f"{{name: x, title: x, seeds: [0], {axes}}}").varied)
    assert arms == [
        "random, none, epochs 1",
        "random, ema weight 0.1, epochs 1",
        "cod, none, epochs 1",
        "cod, ema weight 0.1, epochs 1",
    ]


def test_another_plug_in_takes_the_parameters_of_the_old_one_away(here: Path) -> None:
    text = "{name: x, title: x, seeds: [0], base: {train.objective.weight: 0.5}, axes: {train.objective.name: [none, ema]}}"
    objectives = [study_grid.YAML(typ="safe").load(point.params)["train"]["objective"] for point in points(text)]
    assert objectives[0] == {"name": "none"}
    assert objectives[1]["weight"] == 0.5


def test_points_share_what_no_query_has_touched_yet(here: Path) -> None:
    stages = study.Pipeline(REPOSITORY).stages
    random, entropy, other_seed, _ = (study_grid.shared(point, stages) for point in points(TINY))
    assert list(random) == ["prepare", "train@c1"]
    assert random == entropy
    assert random["prepare"] != other_seed["prepare"]
    objectives = [
        study_grid.shared(point, stages)
        for point in points(TINY.replace("score.strategy.name: [random, entropy]", "train.objective.name: [none, ema]"))
    ]
    assert objectives[0]["prepare"] == objectives[1]["prepare"]
    assert objectives[0]["train@c1"] != objectives[1]["train@c1"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seeds:", "sedes:", "studies/tiny.yaml: seeds: missing"),
        ("cycles: 2", "cycels: 2", "studies/tiny.yaml: cycels: unknown key; did you mean cycles?"),
        ("seeds: [0, 1]", "seeds: [0, 0]", "studies/tiny.yaml: seeds: found 0 twice"),
        ("seeds: [0, 1]", "seeds: []", "studies/tiny.yaml: seeds: found"),
        (
            "seeds: [0, 1]",
            "seeds: [0]\narms: {a: {}}",
            "studies/tiny.yaml: found both axes and arms, expected one of them",
        ),
        ("axes: {score.strategy.name: [random, entropy]}", "", "studies/tiny.yaml: found neither axes nor arms"),
        ("title: Two", "reference: cod\ntitle: Two", "studies/tiny.yaml: reference: found 'cod'"),
        (
            "score.strategy.name",
            "scroe.strategy.name",
            "scroe.strategy.name: params.yaml has no 'scroe'; did you mean score",
        ),
        ("name: tiny", "name: ../tiny", "studies/tiny.yaml: name: found '../tiny'"),
    ],
)
def test_a_study_that_cannot_be_is_refused_with_one_sentence(here: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        points(TINY.replace(old, new))
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_an_unknown_study_is_refused_with_the_near_ones(here: Path) -> None:
    written(TINY)
    with pytest.raises(UserError, match=r"studies/tinny\.yaml: not found; did you mean tiny\?"):
        study_grid.found("tinny")


@pytest.mark.parametrize("key", ["seed", "score__strategy__name", "score__strategy", "score"])
def test_what_a_study_varies_cannot_be_set_for_all_points(here: Path, key: str) -> None:
    with pytest.raises(UserError, match="the study varies"):
        points(TINY, **{key: 3})


def test_files_of_a_dataset_are_named_in_full(here: Path) -> None:
    (here / "train.parquet").touch()
    base = "train.epochs: 1, prepare.dataset: {name: parquet, train: [], test: [elsewhere.parquet]}"
    found = points(TINY.replace("train.epochs: 1", base), prepare__dataset__train=["train.parquet"])
    dataset = study_grid.YAML(typ="safe").load(found[0].params)["prepare"]["dataset"]
    assert dataset == {"name": "parquet", "train": [str(here / "train.parquet")], "test": ["elsewhere.parquet"]}


def test_a_study_like_another_has_its_base_and_seeds(here: Path) -> None:
    written(TINY)
    other = written("{name: other, title: o, like: tiny, base: {train.epochs: 7}, arms: {a: {}}}", "other")
    assert (other.base["train.epochs"], other.base["train.objective"], other.cycles, other.seeds) == (
        7,
        {"name": "none"},
        2,
        [0, 1],
    )
    assert list(other.varied) == ["a"]


@pytest.mark.parametrize("path", sorted((REPOSITORY / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_study_that_comes_with_codline_can_be_laid_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    found = study_grid.read(path)
    assert found.name == path.stem
    laid_out = study_grid.points(found, PARAMS, {})
    assert (
        len({point.name for point in laid_out})
        == len({point.params for point in laid_out})
        == len(found.varied) * len(found.seeds)
    )


@pytest.mark.parametrize("path", sorted((REPOSITORY / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_arm_of_every_study_is_accepted_by_the_stages(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(REPOSITORY)
    files = (
        {"prepare.dataset.train": ["a.parquet"], "prepare.dataset.test": ["b.parquet"]}
        if "parquet" in str(study_grid.read(path).base)
        else {}
    )
    for point in {point.arm: point for point in study_grid.points(study_grid.read(path), PARAMS, files)}.values():
        (tmp_path / "params.yaml").write_text(point.params)
        check(tmp_path / "params.yaml")


def test_a_second_process_cannot_run_the_same_study(here: Path) -> None:
    plan = study.Plan(written(TINY), [], "", "")
    with study.held(plan), pytest.raises(BusyError, match="study tiny is running already"), study.held(plan):
        pass


@pytest.fixture
def asked(untouched: Project) -> Project:
    (untouched.root / "studies/tiny.yaml").write_text(TINY)
    return untouched


def edited(path: Path) -> None:
    path.write_text(path.read_text() + "# moved\n")


def test_uncommitted_code_is_refused_before_anything_runs(asked: Project) -> None:
    edited(asked.root / "codline/metrics.py")
    done = asked.run("codline", "study", "tiny")
    assert done.returncode == UserError.exit_code
    assert (
        done.stderr
        == "codline: codline/metrics.py: not committed as it is; a study runs committed code, so commit or stash it first\n"
    )
    assert not (asked.root / ".codline/studies/tiny").exists()


def test_an_arm_with_a_wrong_value_is_named_before_anything_runs(asked: Project) -> None:
    (asked.root / "studies/tiny.yaml").write_text(TINY.replace("entropy", "entropie"))
    done = asked.run("codline", "study", "tiny")
    assert done.returncode == UserError.exit_code
    assert (
        done.stderr
        == "codline: study tiny: arm entropie: params.yaml: score.strategy.name: unknown strategy 'entropie'; did you mean entropy?\n"
    )
    assert list((asked.root / ".codline/studies/tiny").iterdir()) == [asked.root / ".codline/studies/tiny/checked"]


def test_a_worktree_that_moves_to_another_commit_keeps_its_dvc_lock(
    asked: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(asked.root)
    tree = asked.root / ".codline/studies/tiny/a-s0"
    worktrees.made(tree, worktrees.head(), "seed: 1\n", asked.root / "cache")
    assert not (tree / "dvc.lock").exists()
    (tree / "dvc.lock").write_text("mine")
    edited(asked.root / "codline/metrics.py")
    asked.must("git", "commit", "-qam", "move")
    worktrees.made(tree, worktrees.head(), "seed: 2\n", asked.root / "cache")
    assert (tree / "dvc.lock").read_text() == "mine"
    assert (tree / "params.yaml").read_text() == "seed: 2\n"
    assert (tree / "codline/metrics.py").read_text().endswith("# moved\n")
    assert asked.must("dvc", "cache", "dir").strip() == str(asked.root / ".dvc/cache")
    shutil.rmtree(tree)
    worktrees.made(tree, worktrees.head(), "seed: 3\n", asked.root / "cache")
    assert (tree / "params.yaml").read_text() == "seed: 3\n"


@pytest.fixture(scope="module")
def studied(api: dict[str, str], warm: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two arms of two seeds, really run, MLflow and all. One for all workers."""

    def make(folder: Path) -> None:
        project = cloned(folder / "codline", **api, **warm)
        (project.root / "studies/tiny.yaml").write_text(TINY)
        project.must("codline", "study", "tiny", "--jobs", "2", timeout=580)

    return Project(once(tmp_path_factory, "studied", make) / "codline", **api, **warm)


def folder(project: Project) -> Path:
    return project.root / ".codline/studies/tiny"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_has_every_point_in_its_results(studied: Project) -> None:
    results = read_json(folder(studied) / "results.json")
    assert [(arm["arm"], arm["n"], arm["area"]["n"]) for arm in results["arms"]] == [
        ("random", 2, 2),
        ("entropy", 2, 2),
    ]
    assert results["arms"][1]["difference"]["final"]["n"] == 2
    assert results["commit"] == studied.must("git", "rev-parse", "HEAD").strip()
    assert {(point["arm"], point["seed"], len(point["curve"])) for point in results["points"]} == {
        (a, s, 2) for a in ("random", "entropy") for s in (0, 1)
    }
    assert len((folder(studied) / "results.csv").read_text().splitlines()) == 9
    assert (folder(studied) / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "random (n = 2)" in (folder(studied) / "figure.svg").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_arms_share_is_computed_once(studied: Project) -> None:
    """A stage that ran leaves its time in its point's scratch; one that DVC's run cache had in store leaves none."""
    for stage, times in (("prepare", 2), ("train@c1", 2), ("score@c1", 4), ("train@c2", 4)):
        assert len(list(folder(studied).glob(f"*/.codline/seconds/{stage}.json"))) == times, stage


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_finished_study_runs_nothing_again(studied: Project) -> None:
    def touched() -> dict[str, int]:
        return {
            path.name: path.stat().st_mtime_ns
            for path in [*folder(studied).glob("*.log"), *folder(studied).glob("*-s?.json")]
        }

    before = touched()
    assert len(before) == 8
    said = studied.must("codline", "study", "tiny")
    assert "4 points, 4 of them done" in said
    assert touched() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_points_are_runs_in_the_project_s_own_mlflow(studied: Project) -> None:
    with sqlite3.connect(studied.root / "mlflow.db") as database:
        tagged = "select t.value, s.value from tags t join tags s using (run_uuid) where t.key = 'codline.study.tiny' and s.key = 'codline.seed'"
        assert sorted(database.execute(tagged)) == [
            ("entropy", "0"),
            ("entropy", "1"),
            ("random", "0"),
            ("random", "1"),
        ]
        assert {row[0] for row in database.execute("select distinct status from runs")} == {"FINISHED"}
    assert (studied.root / "mlartifacts").exists()
    assert not list(folder(studied).glob("*/mlartifacts"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_leaves_the_project_s_own_campaign_alone(studied: Project) -> None:
    assert studied.must("git", "status", "--porcelain").split() == ["??", "studies/tiny.yaml"]
    assert not (studied.root / "dvc.lock").exists()
    assert "studies" not in studied.must("dvc", "stage", "list")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_study_leaves_no_process_and_goes_on_to_the_same_results(asked: Project, studied: Project) -> None:
    (asked.root / "studies/tiny.yaml").write_text(TINY.replace("[0, 1]", "[0]"))
    process = asked.start("codline", "study", "tiny", "--jobs", "1")
    trees = [folder(asked) / name for name in ("random-s0", "entropy-s0")]
    deadline = time.monotonic() + 200
    while not study.has(trees[0], "train@c1") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None
    killed(process)
    patience = time.monotonic() + 10
    while any(survivors(tree) for tree in trees) and time.monotonic() < patience:
        time.sleep(0.05)
    assert [survivors(tree) for tree in trees] == [[], []]
    trained = (trees[0] / ".codline/seconds/train@c1.json").stat().st_mtime_ns

    asked.must("codline", "study", "tiny", "--jobs", "1")
    assert (trees[0] / ".codline/seconds/train@c1.json").stat().st_mtime_ns == trained
    whole = {
        (point["arm"], point["seed"]): point["curve"] for point in read_json(folder(studied) / "results.json")["points"]
    }
    mine = {
        (point["arm"], point["seed"]): point["curve"] for point in read_json(folder(asked) / "results.json")["points"]
    }
    assert mine == {key: curve for key, curve in whole.items() if key[1] == 0}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_point_that_fails_does_not_stop_the_others(asked: Project) -> None:
    arms = "arms: {bad: {train.learning_rate: 1.0e+30}, good: {}}"
    text = (
        TINY.replace("axes: {score.strategy.name: [random, entropy]}", arms)
        .replace("cycles: 2", "cycles: 1")
        .replace("[0, 1]", "[0]")
    )
    (asked.root / "studies/tiny.yaml").write_text(text)
    done = asked.run("codline", "study", "tiny", "--jobs", "1")
    assert done.returncode == TrainingError.exit_code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("codline: bad, seed 0: train@c1: ")
    assert line.endswith("; 1 of 2 points are done, run it again to go on")
    assert [arm["n"] for arm in read_json(folder(asked) / "results.json")["arms"]] == [0, 1]
