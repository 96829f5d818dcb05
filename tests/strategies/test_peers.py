"""Our strategies against those of others, and those of others inside our loop."""

import sys
import tracemalloc
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats
from skactiveml import pool as activeml

from codline.acquisition import distances
from codline.acquisition.distances import Points
from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import CodlineError, DataError, UserError
from codline.core.params import parsed
from codline.data import tables
from codline.strategies.baal import Baal
from codline.strategies.badge import Badge
from codline.strategies.bald import Bald
from codline.strategies.base import Chooser, Known, Outputs, Pool, Strategy, Whole
from codline.strategies.core_set import CoreSet
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from codline.strategies.mc_dropout import McDropout
from codline.strategies.prob_cover import ProbCover
from codline.strategies.qbc import Qbc
from codline.strategies.scikit_activeml import Query, ScikitActiveml, told
from codline.strategies.typiclust import Typiclust
from stages.__main__ import check
from stages.score import Params
from tests.workspace import Workspace

BENCH = LearnerContext(lambda _: None, None, 0, lambda *_: None)
HEURISTICS = get_args(Baal.model_fields["heuristic"].annotation)


def whole_of(seed: int = 0, images: int = 60, labeled: int = 10, classes: int = 4, width: int = 8) -> Whole:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(3 * (images + labeled))[: images + labeled]
    features = rng.normal(size=(images + labeled, width)).astype(np.float32)
    known = Known(ids[images:], rng.integers(0, classes, labeled).astype(np.int32), features[images:])
    return Whole(ids[:images], said(rng.normal(size=(images, classes)) * 2), features[:images], known, BENCH)


def said(logits: np.ndarray) -> Outputs:
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Outputs(logits, exponents / exponents.sum(axis=1, keepdims=True))


def passes_of(seed: int, passes: int = 9, images: int = 50, classes: int = 5, *pixels: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(images, classes, *pixels)) * 3
    return [said(base + rng.normal(size=base.shape)).probs_NC for _ in range(passes)]


def scores(strategy: Strategy, passes: list[np.ndarray]) -> np.ndarray:
    return strategy.scores(
        Pool(np.arange(len(passes[0])), Outputs(passes[0], passes[0]), samples=iter(passes)), np.random.default_rng(0)
    )


def chosen(strategy: Chooser, pool: Whole, budget: int, seed: int = 0) -> list[int]:
    return [int(i) for i in strategy.choose(pool, budget, np.random.default_rng(seed))]


def as_theirs(pool: Whole) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, features and labels as scikit-activeml wants them, without our adapter."""
    ids = np.concatenate([pool.ids, pool.known.ids])
    features = np.concatenate([pool.features_ND, pool.known.features_MD]).astype(np.float64)
    return ids, features, np.concatenate([np.full(len(pool.ids), np.nan), pool.known.labels])


# Picks that are the same


@pytest.mark.parametrize("labeled", [1, 10, 200])
def test_core_set_picks_what_the_greedy_k_center_of_scikit_activeml_picks(labeled: int) -> None:
    pool = whole_of(labeled, images=400, labeled=labeled, width=32)
    ids, features, labels = as_theirs(pool)
    rows, _ = activeml.k_greedy_center(features, labels, batch_size=80, random_state=0)
    assert chosen(CoreSet(), pool, 80) == ids[rows].tolist() == chosen(ScikitActiveml(query="CoreSet"), pool, 80)


def test_core_set_picks_what_small_text_picks_where_rows_of_the_pool_are_rows_of_all() -> None:
    """Elsewhere small-text covers the wrong rows: see the next test."""
    coresets = pytest.importorskip("small_text.query_strategies.coresets", reason="small-text is not installed")
    pool = whole_of(1, images=300, labeled=30)
    ids, features, _ = as_theirs(pool)
    rows = coresets.greedy_coreset(features, np.arange(300), np.arange(300, 330), 40, distance_metric="euclidean")
    assert chosen(CoreSet(), pool, 40) == ids[rows].tolist()


def test_core_set_does_not_care_whether_labelled_rows_come_before_the_pool_or_after_it() -> None:
    """small-text 1.4.1 takes positions in the pool for positions among all rows."""
    pool = whole_of(2, images=300, labeled=30)
    swapped = {old: new for new, old in enumerate([*pool.ids, *pool.known.ids])}
    after = replace(pool, ids=np.arange(300), known=replace(pool.known, ids=np.arange(300, 330)))
    before = replace(pool, ids=np.arange(30, 330), known=replace(pool.known, ids=np.arange(30)))
    expected = [swapped[i] for i in chosen(CoreSet(), pool, 40)]
    assert chosen(CoreSet(), after, 40) == expected
    assert [i - 30 for i in chosen(CoreSet(), before, 40)] == expected


@pytest.mark.parametrize(
    ("ours", "method", "shift"),
    [(Entropy(), "entropy", 0), (LeastConfidence(), "least_confident", 0), (Margin(), "margin_sampling", 1)],
)
def test_scores_are_the_uncertainty_scores_of_scikit_activeml(ours: Strategy, method: str, shift: int) -> None:
    probs = passes_of(0)[0]
    found, theirs = scores(ours, [probs]), activeml.uncertainty_scores(probs, method=method)
    assert found + shift == pytest.approx(theirs, abs=1e-12)
    assert np.argsort(-found).tolist() == np.argsort(-theirs).tolist()


@pytest.mark.parametrize(
    ("ours", "method"), [(Entropy(), "entropy"), (LeastConfidence(), "least_confident"), (Margin(), "margin_sampling")]
)
def test_uncertainty_sampling_in_our_loop_asks_for_our_top_scores(ours: Strategy, method: str) -> None:
    pool = whole_of(3)
    best = pool.ids[np.argsort(-scores(ours, [pool.outputs.probs_NC]))][:12]
    assert chosen(ScikitActiveml(query="UncertaintySampling", settings={"method": method}), pool, 12) == best.tolist()


def test_bald_is_the_information_that_batch_bald_of_scikit_activeml_starts_from() -> None:
    passes = passes_of(1)
    assert scores(Bald(), passes) == pytest.approx(
        activeml.batch_bald(np.stack(passes), batch_size=1)[0], abs=1e-6
    )  # theirs cuts off at 1e-7


@pytest.mark.parametrize("pixels", [(), (3, 2)], ids=["an image", "pixels"])
@pytest.mark.parametrize(("ours", "heuristic"), [(Bald(), "BALD"), (McDropout(), "Entropy")])
def test_bald_and_mc_dropout_score_as_baal_does(ours: Strategy, heuristic: str, pixels: tuple[int, ...]) -> None:
    pytest.importorskip("baal", reason="baal is not installed: it brings Jupyter along", exc_type=ImportError)
    passes = passes_of(2, 9, 50, 5, *pixels)
    assert scores(Baal.model_validate({"heuristic": heuristic}), passes) == pytest.approx(
        scores(ours, passes), abs=1e-12
    )


@pytest.mark.parametrize(
    ("by", "theirs"),
    [
        ("vote_entropy", lambda votes: activeml.vote_entropy(votes, range(5))),
        ("variation_ratio", activeml.variation_ratios),
    ],
)
def test_votes_of_a_committee_count_as_in_scikit_activeml(by: str, theirs: Any) -> None:
    """But for ties, to which ours gives a millionth of the entropy."""
    committee = passes_of(4, 4)
    strategy = Qbc.model_validate({"by": by})
    ours, *others = (Outputs(np.log(probs), probs) for probs in committee)
    pool = Pool(np.arange(50), ours, dict(zip(strategy.members, others, strict=True)))
    votes = np.stack([probs.argmax(axis=1) for probs in committee], axis=1)
    assert strategy.scores(pool, np.random.default_rng(0)) == pytest.approx(theirs(votes), abs=2e-6)


def test_typiclust_picks_what_scikit_activeml_picks_where_clusters_are_clear() -> None:
    """Theirs has no cap on clusters, scales nothing, and wants more neighbours than half of a small cluster: here all of that is the same."""
    rng = np.random.default_rng(0)
    sizes = [30, 26, 22, 18, 14, 12]
    features = np.concatenate(
        [rng.normal(size=(size, 4)) + 100 * np.eye(6)[i, :4] - 300 * (i > 3) * i for i, size in enumerate(sizes)]
    ).astype(np.float32)
    labeled = np.isin(np.arange(len(features)), [0, 60])  # one in the largest cluster, one in the third
    known = Known(np.flatnonzero(labeled), np.zeros(2, np.int32), features[labeled])
    pool = Whole(np.flatnonzero(~labeled), said(np.zeros((120, 2))), features[~labeled], known, BENCH)
    theirs = activeml.TypiClust(random_state=0, k=5).query(
        features.astype(np.float64), np.where(labeled, 0, np.nan), batch_size=4
    )
    assert (
        chosen(Typiclust(neighbors=5, normalized=False), pool, 4)
        == list(theirs)
        == chosen(ScikitActiveml(query="TypiClust"), pool, 4)
    )


@pytest.mark.parametrize("labeled", [0, 10])
@pytest.mark.filterwarnings("ignore:The maximum purity")
def test_every_pick_of_prob_cover_covers_the_most_by_scikit_activeml(labeled: int) -> None:
    """Theirs leaves ties to chance, so its picks themselves differ."""
    pool = whole_of(5, images=100, labeled=labeled, width=3)
    ids, features, labels = as_theirs(pool)
    for image in chosen(ProbCover(radius=0.8, normalized=False), pool, 25):
        _, utilities = activeml.ProbCover(deltas=[0.8], random_state=0).query(features, labels, return_utilities=True)
        assert utilities[0][ids == image] == np.nanmax(utilities[0])
        labels[ids == image] = 0


def test_the_radius_of_prob_cover_lies_where_scikit_activeml_sees_the_last_pure_one() -> None:
    rng = np.random.default_rng(1)
    features = np.concatenate([rng.normal(size=(50, 2)) + place for place in ([0, 0], [7, 0], [0, 7])]).astype(
        np.float32
    )
    steps = np.arange(0.05, 12, 0.05)
    theirs = activeml.ProbCover(n_classes=3, deltas=steps, random_state=0)
    theirs.query(features.astype(np.float64), np.full(150, np.nan))
    groups = distances.clusters(features, 3, np.random.default_rng(0))
    ours = ProbCover(normalized=False).pure_radius(Points.of(features), groups, np.random.default_rng(0))
    assert theirs.delta_max_ <= ours <= theirs.delta_max_ + 0.05


# Draws that are distributed the same; those of k-means++ alone are compared with scikit-learn's in test_geometry.py


FEW = replace(whole_of(6, images=6, labeled=0, classes=3, width=2), ids=np.arange(6))


def gradients() -> np.ndarray:
    probs = FEW.outputs.probs_NC
    return np.einsum("nc,nd->ncd", probs - np.eye(3)[probs.argmax(axis=1)], FEW.features_ND).reshape(6, -1)


def chances(least: np.ndarray) -> np.ndarray:
    """Of each image to come second and each third, when so far lies each from the centres before the second."""
    rows = gradients()
    third = [each / each.sum() for each in np.minimum(least, np.square(rows[:, None] - rows).sum(axis=2))]
    shares: np.ndarray = (least / least.sum())[:, None] * np.stack(third)
    return shares.ravel()


def agree(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether draws of a second and a third image follow from these chances."""
    counts = np.bincount(found[:, 1] * 6 + found[:, 2], minlength=36)
    often = expected * len(found) >= 5
    shares = [*expected[often], max(expected[~often].sum(), 1e-9)]
    return not counts[expected < 1e-12].any() and bool(
        stats.chisquare([*counts[often], counts[~often].sum()], len(found) * np.array(shares), sum_check=False).pvalue
        > 0.01
    )


def test_the_second_and_third_pick_of_badge_have_the_chances_that_k_means_plus_plus_gives_them() -> None:
    rows = gradients()
    first = int(np.square(rows).sum(axis=1).argmax())
    found = np.array([chosen(Badge(), FEW, 3, seed) for seed in range(2000)])
    assert set(found[:, 0]) == {first}
    assert agree(found, chances(np.square(rows - rows[first]).sum(axis=1)))


def test_badge_of_scikit_activeml_is_distributed_as_ours_or_as_if_zero_were_a_centre_too() -> None:
    """Up to 1.0.1 it takes the gradients' lengths for distances to a centre, and draws images that the model is sure of less often (its issue 588)."""
    rows = gradients()
    lengths = np.square(rows).sum(axis=1)
    apart = np.square(rows - rows[lengths.argmax()]).sum(axis=1)
    _, features, labels = as_theirs(FEW)
    ask = {"clf": told(FEW.features_ND, FEW.outputs.probs_NC), "fit_clf": False, "batch_size": 3}
    found = np.array([activeml.Badge(random_state=seed).query(features, labels, **ask) for seed in range(1000)])
    assert set(found[:, 0]) == {int(lengths.argmax())}
    assert agree(found, chances(np.minimum(apart, lengths))) != agree(found, chances(apart))


# Theirs in our loop


@pytest.mark.parametrize("query", get_args(Query))
def test_every_query_of_theirs_follows_from_our_seed_alone(query: Query) -> None:
    """Clue of scikit-activeml 1.0.1 clusters by numpy's global stream, whatever its random_state."""
    strategy, pool = ScikitActiveml(query=query), whole_of(7, images=30, labeled=6)
    first = chosen(strategy, pool, 5, seed=1)
    assert len(set(first)) == 5
    assert set(first) <= set(pool.ids.tolist())
    assert chosen(strategy, pool, 5, seed=1) == first


def test_what_theirs_asks_for_twice_is_asked_for_once() -> None:
    """TypiClust of scikit-activeml 1.0.1 does, where fewer clusters have images than are asked for."""
    features = np.repeat(np.array([[0.0], [5.0], [9.0]], np.float32), 4, axis=0)
    pool = replace(whole_of(8, images=12, labeled=0, width=1), features_ND=features)
    assert [len(set(chosen(ScikitActiveml(query="TypiClust"), pool, 8, seed))) for seed in range(10)] == [8] * 10


def test_settings_reach_the_strategy_there() -> None:
    pool = whole_of(9)
    far = chosen(ScikitActiveml(query="CoreSet", settings={"metric": "cosine"}), pool, 10)
    assert far != chosen(ScikitActiveml(query="CoreSet"), pool, 10)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (
            {"query": "Bage"},
            r"^params.yaml: score.strategy.query: found 'Bage', expected 'Badge', 'Clue', .* or 'UncertaintySampling'$",
        ),
        ({"query": "QueryByCommittee"}, r"found 'QueryByCommittee', expected 'Badge', 'Clue'"),
        ({}, r"^params.yaml: score.strategy.query: missing$"),
        (
            {"query": "Badge", "settings": {"random_state": 1}},
            r"expected neither random_state, which follows from the campaign's seed, nor missing_label$",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(strategy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parsed({"strategy": {"name": "scikit_activeml", **strategy}, "batch_size": 1}, Params, "score")


def test_a_setting_that_the_strategy_there_does_not_know_is_refused() -> None:
    with pytest.raises(
        UserError,
        match=r"^params.yaml: score.strategy.settings.metrik: unknown to CoreSet of scikit-activeml; did you mean metric",
    ):
        chosen(ScikitActiveml(query="CoreSet", settings={"metrik": "cosine"}), whole_of(), 2)


def test_what_goes_wrong_there_is_said_in_one_sentence() -> None:
    with pytest.raises(
        CodlineError, match=r"^score.strategy: UncertaintySampling of scikit-activeml failed: The given method tea .*"
    ) as found:
        chosen(ScikitActiveml(query="UncertaintySampling", settings={"method": "tea"}), whole_of(), 2)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("module", "strategy", "wanted"),
    [
        ("skactiveml", {"name": "scikit_activeml", "query": "CoreSet"}, "scikit-activeml>=1"),
        ("baal", {"name": "baal"}, "baal>=2"),
    ],
)
def test_without_its_package_each_is_refused_before_anything_runs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, module: str, strategy: dict[str, str], wanted: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    workspace.change(**{"score.strategy": strategy})
    sentence = (
        rf"^params.yaml: score.strategy.name: found '{strategy['name']}', which needs {wanted}; it is not installed$"
    )
    with pytest.raises(UserError, match=sentence):
        check(workspace.root / "params.yaml")
    with pytest.raises(UserError, match=sentence):
        workspace.run("score", "c1")


def test_core_set_of_scikit_activeml_asks_for_the_images_of_ours_in_a_campaign(workspace: Workspace) -> None:
    found = {}
    for strategy in ({"name": "core_set"}, {"name": "scikit_activeml", "query": "CoreSet"}):
        workspace.change(**{"score.strategy": strategy, "select.budget": 20})
        workspace.run("score", "c2")
        found[strategy["name"]] = tables.read(workspace.path("score", "scores", "c2"), tables.SCORES)
    assert found["scikit_activeml"].equals(found["core_set"])


@pytest.mark.parametrize("heuristic", ["BALD", "Margin"])
def test_baal_scores_the_same_bits_for_every_batch_size_in_a_campaign(workspace: Workspace, heuristic: str) -> None:
    pytest.importorskip("baal", reason="baal is not installed: it brings Jupyter along", exc_type=ImportError)
    found = []
    for size in (7, 1024):
        workspace.change(
            **{"score.strategy": {"name": "baal", "heuristic": heuristic, "passes": 5}, "score.batch_size": size}
        )
        workspace.run("score", "c2")
        found.append(workspace.path("score", "scores", "c2").read_bytes())
    assert found[0] == found[1]


# Published defects, not ours


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_an_image_that_is_not_finite_is_refused_instead_of_changing_its_neighbours(heuristic: str) -> None:
    """baal 2.1.0 takes all of a batch for logits if one value in it is no probability, and gives NaN the lowest score."""
    pytest.importorskip("baal", reason="baal is not installed: it brings Jupyter along", exc_type=ImportError)
    strategy, passes = Baal.model_validate({"heuristic": heuristic}), passes_of(10)
    before = scores(strategy, passes)
    sure = [
        np.where(np.arange(50)[:, None] == 3, np.nextafter(np.eye(5)[0], 2) * (np.arange(5) == 0), probs)
        for probs in passes
    ]
    assert np.delete(scores(strategy, sure), 3).tolist() == np.delete(before, 3).tolist()
    passes[1][4] = np.nan
    with pytest.raises(DataError, match=r"^outputs of image 4: found NaN or infinity, expected finite numbers$"):
        scores(strategy, passes)


@pytest.mark.parametrize("strategy", [CoreSet(), Badge()])
def test_memory_grows_neither_with_budget_times_pool_nor_with_classes_times_features(strategy: Chooser) -> None:
    """scikit-activeml 1.0.1 holds both, DeepAL all pairs."""
    pool = whole_of(11, images=10_000, labeled=10, classes=80, width=16)
    tracemalloc.start()
    chosen(strategy, pool, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < min(10_000 * 1000 * 8, 10_000 * 80 * 16 * 8)


def test_ranks_within_a_subset_of_the_pool_are_not_taken_for_places_in_the_pool(workspace: Workspace) -> None:
    """baal 2.1.0's ActiveLearningExperiment labels the wrong images when pool_size is given."""
    workspace.change(**{"score.strategy": {"name": "entropy"}, "select.budget": 20})
    workspace.run("score", "c2")
    whole = dict(
        zip(
            *(
                tables.read(workspace.path("score", "scores", "c2"), tables.SCORES)[key].to_pylist()
                for key in ("id", "score")
            ),
            strict=True,
        )
    )
    workspace.change(**{"score.subset": 100})
    for stage in ("score", "select"):
        workspace.run(stage, "c2")
    subset = tables.read(workspace.path("score", "scores", "c2"), tables.SCORES)["id"].to_pylist()
    query = tables.read(workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_pylist()
    assert query == sorted(subset, key=lambda i: (-whole[i], i))[:20]
