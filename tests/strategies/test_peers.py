"""Our strategies compared with those of scikit-activeml and small-text, and scikit-activeml's inside our loop."""

import sys
import tracemalloc
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats
from skactiveml import pool as activeml

from codline.acquisition.distances import Points
from codline.acquisition.features import k_means
from codline.core.errors import CodlineError, UserError
from codline.core.params import validate
from codline.data import tables
from codline.scoring.scorers import outputs_from_logits
from codline.strategies.badge import Badge
from codline.strategies.bald import Bald
from codline.strategies.base import BatchStrategy, LabeledFeatures, PoolChunk, PoolFeatures, Strategy
from codline.strategies.core_set import CoreSet
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from codline.strategies.prob_cover import ProbCover
from codline.strategies.qbc import Qbc
from codline.strategies.scikit_activeml import Query, ScikitActiveml, fixed_classifier
from codline.strategies.typiclust import Typiclust
from stages.check_params import check
from stages.score import Params
from tests.pools import make_learner_context, make_pool, outputs_from_probs, select_ids
from tests.workspace import Workspace

UNCERTAINTY = [(Entropy(), "entropy"), (LeastConfidence(), "least_confident"), (Margin(), "margin_sampling")]


def make_passes(seed: int, *, passes: int = 9, pixels: tuple[int, ...] = ()) -> list[np.ndarray]:
    """Probabilities of 50 images and 5 classes, with noise that differs between passes."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(50, 5, *pixels)) * 3
    return [outputs_from_logits(logits + rng.normal(size=logits.shape)).probs_NC for _ in range(passes)]


def score_passes(strategy: Strategy, passes: list[np.ndarray]) -> np.ndarray:
    chunk = PoolChunk(np.arange(len(passes[0])), outputs_from_probs(passes[0]), dropout_probs=iter(passes))
    return strategy.scores(chunk, np.random.default_rng(0))


def activeml_inputs(pool: PoolFeatures) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, features and labels as scikit-activeml expects them, without our adapter."""
    ids = np.concatenate([pool.ids, pool.labeled.ids])
    features = np.concatenate([pool.features_ND, pool.labeled.features_MD]).astype(np.float64)
    return ids, features, np.concatenate([np.full(len(pool.ids), np.nan), pool.labeled.labels])


# Equal picks and scores


@pytest.mark.parametrize("labeled", [1, 10, 200])
def test_core_set_picks_like_scikit_activeml(labeled: int) -> None:
    pool = make_pool(labeled, images=400, labeled=labeled, width=32)
    ids, features, labels = activeml_inputs(pool)
    rows, _ = activeml.k_greedy_center(features, labels, batch_size=80, random_state=0)
    query = ids[rows].tolist()
    assert select_ids(CoreSet(), pool, 80) == query == select_ids(ScikitActiveml(query="CoreSet"), pool, 80)


def test_core_set_picks_like_small_text_where_the_pool_comes_first() -> None:
    coresets = pytest.importorskip("small_text.query_strategies.coresets", reason="small-text is not installed")
    pool = make_pool(1, images=300, labeled=30)
    ids, features, _ = activeml_inputs(pool)
    rows = coresets.greedy_coreset(features, np.arange(300), np.arange(300, 330), 40, distance_metric="euclidean")
    assert select_ids(CoreSet(), pool, 40) == ids[rows].tolist()


def test_core_set_does_not_depend_on_whether_labeled_ids_are_smaller_or_larger() -> None:
    """small-text 1.4.1 takes positions in the pool for positions among all rows."""
    pool = make_pool(2, images=300, labeled=30)
    larger = replace(pool, ids=np.arange(300), labeled=replace(pool.labeled, ids=np.arange(300, 330)))
    smaller = replace(pool, ids=np.arange(30, 330), labeled=replace(pool.labeled, ids=np.arange(30)))
    position = {image: row for row, image in enumerate(pool.ids.tolist())}
    expected = [position[i] for i in select_ids(CoreSet(), pool, 40)]
    assert select_ids(CoreSet(), larger, 40) == expected
    assert [i - 30 for i in select_ids(CoreSet(), smaller, 40)] == expected


@pytest.mark.parametrize(("strategy", "method"), UNCERTAINTY)
def test_uncertainty_scores_are_those_of_scikit_activeml(strategy: Strategy, method: str) -> None:
    probs = make_passes(0)[0]
    scores, theirs = score_passes(strategy, [probs]), activeml.uncertainty_scores(probs, method=method)
    assert scores + (method == "margin_sampling") == pytest.approx(theirs, abs=1e-12)
    assert np.argsort(-scores).tolist() == np.argsort(-theirs).tolist()


@pytest.mark.parametrize(("strategy", "method"), UNCERTAINTY)
def test_uncertainty_sampling_of_scikit_activeml_selects_our_top_scores(strategy: Strategy, method: str) -> None:
    pool = make_pool(3, images=60)
    top = pool.ids[np.argsort(-score_passes(strategy, [pool.outputs.probs_NC]))][:12]
    theirs = ScikitActiveml(query="UncertaintySampling", settings={"method": method})
    assert select_ids(theirs, pool, 12) == top.tolist()


def test_bald_is_the_score_that_batch_bald_of_scikit_activeml_starts_from() -> None:
    passes = make_passes(1)
    theirs = activeml.batch_bald(np.stack(passes), batch_size=1)[0]  # clips probabilities at 1e-7
    assert score_passes(Bald(), passes) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(
    ("by", "theirs"),
    [
        ("vote_entropy", lambda votes: activeml.vote_entropy(votes, range(5))),
        ("variation_ratio", activeml.variation_ratios),
    ],
)
def test_qbc_counts_votes_like_scikit_activeml(by: str, theirs: Any) -> None:
    """Up to the tie-breaker, a millionth of the entropy."""
    committee, strategy = make_passes(4, passes=4), Qbc.model_validate({"by": by, "members": 3})
    current, *members = (outputs_from_probs(probs) for probs in committee)
    chunk = PoolChunk(np.arange(50), current, dict(zip(strategy.member_names(), members, strict=True)))
    votes = np.stack([probs.argmax(axis=1) for probs in committee], axis=1)
    assert strategy.scores(chunk, np.random.default_rng(0)) == pytest.approx(theirs(votes), abs=2e-6)


def test_typiclust_picks_like_scikit_activeml_where_clusters_are_clear() -> None:
    """Theirs has no limit on clusters, does not normalize or square, and counts more neighbors in small clusters."""
    rng = np.random.default_rng(0)
    centers = [100 * np.eye(6)[i, :4] - 300 * (i > 3) * i for i in range(6)]
    sizes = [30, 26, 22, 18, 14, 12]
    clusters = [rng.normal(size=(size, 4)) + center for size, center in zip(sizes, centers, strict=True)]
    features = np.concatenate(clusters).astype(np.float32)
    is_labeled = np.isin(np.arange(len(features)), [0, 60])  # one in the largest cluster, one in the third
    pool = PoolFeatures(
        np.flatnonzero(~is_labeled),
        outputs_from_probs(np.full((120, 2), 0.5)),
        features[~is_labeled],
        LabeledFeatures(np.flatnonzero(is_labeled), np.zeros(2, np.int32), features[is_labeled]),
        make_learner_context(),
    )
    labels = np.where(is_labeled, 0, np.nan)
    theirs = list(activeml.TypiClust(random_state=0, k=5).query(features.astype(np.float64), labels, batch_size=4))
    assert select_ids(Typiclust(neighbors=5, normalized=False), pool, 4) == theirs
    assert select_ids(ScikitActiveml(query="TypiClust"), pool, 4) == theirs


@pytest.mark.parametrize("labeled", [0, 10])
@pytest.mark.filterwarnings("ignore:The maximum purity")
def test_prob_cover_picks_have_the_highest_utility_in_scikit_activeml(labeled: int) -> None:
    """Theirs breaks ties at random, so the picks themselves differ."""
    pool = make_pool(5, images=100, labeled=labeled, width=3)
    ids, features, labels = activeml_inputs(pool)
    theirs = activeml.ProbCover(deltas=[0.8], random_state=0)
    for image in select_ids(ProbCover(radius=0.8, normalized=False), pool, 25):
        _, utilities = theirs.query(features, labels, return_utilities=True)
        assert utilities[0][ids == image] == np.nanmax(utilities[0])
        labels[ids == image] = 0


def test_prob_cover_radius_is_the_largest_pure_one_of_scikit_activeml() -> None:
    rng = np.random.default_rng(1)
    clusters = [rng.normal(size=(50, 2)) + center for center in ([0, 0], [7, 0], [0, 7])]
    features = np.concatenate(clusters).astype(np.float32)
    theirs = activeml.ProbCover(n_classes=3, deltas=np.arange(0.05, 12, 0.05), random_state=0)
    theirs.query(features.astype(np.float64), np.full(150, np.nan))
    found = k_means(features, 3, np.random.default_rng(0))
    radius = ProbCover(normalized=False).pure_radius(Points.from_rows(features), found, np.random.default_rng(0))
    assert theirs.delta_max_ <= radius <= theirs.delta_max_ + 0.05


# Equal distributions; k-means++ itself is compared with scikit-learn's in tests/acquisition/test_distances.py

SIX_IMAGES = replace(
    make_pool(6, images=6, labeled=0, classes=3, width=2),
    ids=np.arange(6),
    features_ND=np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32),
)
SIX_PROBS = SIX_IMAGES.outputs.probs_NC
SIX_GRADIENTS = np.einsum(
    "nc,nd->ncd", SIX_PROBS - np.eye(3)[SIX_PROBS.argmax(axis=1)], SIX_IMAGES.features_ND
).reshape(6, -1)
SIX_SQUARED_NORMS = np.square(SIX_GRADIENTS).sum(axis=1)
SIX_LONGEST = int(SIX_SQUARED_NORMS.argmax())
SIX_DISTANCES = np.square(SIX_GRADIENTS - SIX_GRADIENTS[SIX_LONGEST]).sum(axis=1)  # squared, to the first pick


def follow_k_means_plus_plus(queries: np.ndarray, distances: np.ndarray) -> bool:
    """Whether the second and third picks follow k-means++, given squared distances to the nearest center so far."""
    pairs = np.minimum(distances, np.square(SIX_GRADIENTS[:, None] - SIX_GRADIENTS).sum(axis=2))
    third = pairs / pairs.sum(axis=1, keepdims=True)
    chances = ((distances / distances.sum())[:, None] * third).ravel()
    counts = np.bincount(queries[:, 1] * 6 + queries[:, 2], minlength=36)
    frequent = chances * len(queries) >= 5
    expected = [*chances[frequent], max(chances[~frequent].sum(), 1e-9)]
    found = [*counts[frequent], counts[~frequent].sum()]
    p_value = stats.chisquare(found, len(queries) * np.array(expected), sum_check=False).pvalue
    return not counts[chances < 1e-12].any() and bool(p_value > 0.01)


def test_badge_picks_follow_k_means_plus_plus() -> None:
    queries = np.array([select_ids(Badge(), SIX_IMAGES, 3, seed) for seed in range(1000)])
    assert set(queries[:, 0]) == {SIX_LONGEST}
    assert follow_k_means_plus_plus(queries, SIX_DISTANCES)


def test_badge_of_scikit_activeml_is_distributed_like_ours_or_as_if_zero_were_a_center() -> None:
    """Up to 1.0.1 it takes the gradients' norms for distances to a center (its issue 588)."""
    _, features, labels = activeml_inputs(SIX_IMAGES)
    model = fixed_classifier(SIX_IMAGES.features_ND, SIX_PROBS)
    arguments = {"clf": model, "fit_clf": False, "batch_size": 3}
    queries = np.array([activeml.Badge(random_state=seed).query(features, labels, **arguments) for seed in range(500)])
    assert set(queries[:, 0]) == {SIX_LONGEST}
    with_zero = np.minimum(SIX_DISTANCES, SIX_SQUARED_NORMS)
    assert follow_k_means_plus_plus(queries, with_zero) != follow_k_means_plus_plus(queries, SIX_DISTANCES)


# scikit-activeml in our loop


@pytest.mark.parametrize("query", get_args(Query))
def test_scikit_activeml_queries_depend_on_our_seed_only(query: Query) -> None:
    """Clue of scikit-activeml 1.0.1 clusters with numpy's global generator, whatever its random_state."""
    strategy, pool = ScikitActiveml(query=query), make_pool(7)
    assert select_ids(strategy, pool, 5, seed=1) == select_ids(strategy, pool, 5, seed=1)


def test_scikit_activeml_query_is_filled_up_if_it_has_an_image_twice() -> None:
    """TypiClust of scikit-activeml 1.0.1 returns some twice if there are fewer clusters than images to select."""
    features = np.repeat(np.array([[0.0], [5.0], [9.0]], np.float32), 4, axis=0)
    pool = replace(make_pool(8, images=12, labeled=0, width=1), features_ND=features)
    for seed in range(10):
        select_ids(ScikitActiveml(query="TypiClust"), pool, 8, seed)


def test_scikit_activeml_settings_reach_its_constructor() -> None:
    pool, cosine = make_pool(9), ScikitActiveml(query="CoreSet", settings={"metric": "cosine"})
    assert select_ids(cosine, pool, 10) != select_ids(ScikitActiveml(query="CoreSet"), pool, 10)


QUERY_NAMES = "found '{}', expected 'Badge', 'Clue', .* or 'UncertaintySampling'$"


@pytest.mark.parametrize(
    ("parameters", "refusal"),
    [
        ({"query": "Bage"}, r"^params.yaml: score.strategy.query: " + QUERY_NAMES.format("Bage")),
        ({"query": "QueryByCommittee"}, QUERY_NAMES.format("QueryByCommittee")),
        ({}, r"^params.yaml: score.strategy.query: missing$"),
        (
            {"query": "Badge", "settings": {"random_state": 1}},
            r"expected neither random_state, which follows from the campaign's seed, nor missing_label$",
        ),
    ],
)
def test_scikit_activeml_refuses_wrong_parameters(parameters: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UserError, match=refusal):
        validate({"strategy": {"name": "scikit_activeml", **parameters}, "batch_size": 1}, Params, "score")


def test_scikit_activeml_refuses_unknown_settings() -> None:
    refusal = (
        r"^params.yaml: score.strategy.settings.metrik: unknown to CoreSet of scikit-activeml; did you mean metric"
    )
    with pytest.raises(UserError, match=refusal):
        select_ids(ScikitActiveml(query="CoreSet", settings={"metrik": "cosine"}), make_pool(), 2)


def test_scikit_activeml_errors_become_one_sentence() -> None:
    refusal = r"^score.strategy: UncertaintySampling of scikit-activeml failed: The given method tea .*"
    with pytest.raises(CodlineError, match=refusal) as error:
        select_ids(ScikitActiveml(query="UncertaintySampling", settings={"method": "tea"}), make_pool(), 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("module", "strategy", "package"),
    [
        ("skactiveml", {"name": "scikit_activeml", "query": "CoreSet"}, "scikit-activeml>=1"),
        ("baal", {"name": "baal"}, "baal>=2"),
    ],
)
def test_strategies_of_libraries_are_refused_if_the_library_is_missing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, module: str, strategy: dict[str, str], package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    workspace.change(**{"score.strategy": strategy})
    found = f"found '{strategy['name']}', which needs {package}; it is not installed"
    for run in (lambda: check(workspace.root / "params.yaml"), lambda: workspace.run("score", "c1")):
        with pytest.raises(UserError, match=rf"^params.yaml: score.strategy.name: {found}$"):
            run()


def test_core_set_of_scikit_activeml_selects_our_query_in_a_campaign(workspace: Workspace) -> None:
    scores = []
    for strategy in ({"name": "core_set"}, {"name": "scikit_activeml", "query": "CoreSet"}):
        workspace.change(**{"score.strategy": strategy, "select.budget": 20})
        workspace.run("score", "c2")
        scores.append(tables.read_table(workspace.path("score", "scores", "c2"), tables.SCORES))
    assert scores[0].equals(scores[1])


# Defects of other libraries that ours must not have


@pytest.mark.parametrize("strategy", [CoreSet(), Badge()])
def test_memory_does_not_grow_with_budget_times_pool_or_classes_times_features(strategy: BatchStrategy) -> None:
    """scikit-activeml 1.0.1 holds both, DeepAL all pairs of images."""
    pool = make_pool(11, images=5000, labeled=10, classes=80, width=16)
    tracemalloc.start()
    select_ids(strategy, pool, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < min(5000 * 1000 * 8, 5000 * 80 * 16 * 8)


def test_ranks_within_a_subset_are_not_taken_for_positions_in_the_pool(workspace: Workspace) -> None:
    """baal 2.1.0's ActiveLearningExperiment labels the wrong images if pool_size is given."""
    workspace.change(**{"score.strategy": {"name": "entropy"}, "select.budget": 20})
    workspace.run("score", "c2")
    path = workspace.path("score", "scores", "c2")
    table = tables.read_table(path, tables.SCORES)
    scores = dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))
    workspace.change(**{"score.subset": 100})
    for stage in ("score", "select"):
        workspace.run(stage, "c2")
    subset = tables.read_table(path, tables.SCORES)["id"].to_pylist()
    query = tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_pylist()
    assert query == sorted(subset, key=lambda i: (-scores[i], i))[:20]
