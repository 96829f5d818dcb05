"""Segmentation goes through the same stages: only dataset and model differ."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional
from torchmetrics.functional.classification import multiclass_calibration_error, multiclass_jaccard_index

from codline.acquisition.discrepancy import discrepancy
from codline.acquisition.image_losses import losses
from codline.annotators.base import Question
from codline.annotators.simulated import Simulated
from codline.core.errors import DataError, UserError
from codline.data import dataset_info, image_store, masks, output_store, tables
from codline.data.dense_outputs import NOTHING, STRIDE, per_image, thinned
from codline.evaluation.metrics import Segmentation
from codline.learning import inference, model_file, task_loss
from codline.learning.augmentation import Augment, cut
from codline.report import query_images
from codline.scoring import scorers
from codline.strategies.base import Outputs, Pool
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from tests.workspace import Workspace, created

CLASSES = 3
STREETS = {
    "prepare": {"dataset": {"name": "streets", "count": 60}, "model": {"name": "small_unet", "width": 4}, "start": 0.2},
    "train": {
        "epochs": 2,
        "batch_size": 8,
        "augment": {"crop": 4, "flip": True},
        "objective": {"name": "ema"},
        "snapshots": [1],
    },
    "score": {"strategy": {"name": "cod"}, "batch_size": 16},
    "evaluate": {"batch_size": 16, "calibration_bins": 15},
}
seeds = st.integers(0, 10**6)


def made(seed: int, count: int = 2, height: int = 16, width: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Logits and masks; some pixels have no class."""
    rng = np.random.default_rng(seed)
    painted = rng.integers(0, CLASSES, (count, height, width), np.uint8)
    return rng.normal(size=(count, CLASSES, height, width)).astype(np.float32) * 3, np.where(
        rng.random(painted.shape) < 0.1, NOTHING, painted
    ).astype(np.uint8)


@given(seeds, st.integers(0, 3), st.booleans(), st.sampled_from([None, 5]))
def test_a_mask_moves_with_its_image_and_has_no_class_where_nothing_was(
    seed: int, crop: int, flip: bool, size: int | None
) -> None:
    painted = torch.randint(0, 255, (3, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    pictures = (painted + 1)[:, None]  # a pixel's value tells its class, and black is what comes from outside
    moved, moved_masks = Augment(crop=crop, flip=flip, size=size).pair(
        pictures, painted, torch.Generator().manual_seed(seed)
    )
    assert torch.equal(moved[:, 0] - 1, moved_masks)
    assert moved_masks.dtype == torch.uint8
    assert crop or not (moved_masks == NOTHING).any()


def test_a_square_is_cut_out_within_the_image_anywhere() -> None:
    picture = torch.arange(30).reshape(1, 1, 5, 6).repeat(200, 1, 1, 1)
    found = cut(picture, 3, torch.Generator().manual_seed(0))
    assert found.shape == (200, 1, 3, 3)
    corners = {int(one[0, 0, 0]) for one in found}
    assert corners == {6 * top + left for top in range(3) for left in range(4)}
    assert all(torch.equal(one[0], one[0, 0, 0] + 6 * torch.arange(3)[:, None] + torch.arange(3)) for one in found)


def test_a_square_larger_than_the_image_is_all_of_it() -> None:
    picture = torch.rand(2, 3, 4, 9)
    assert cut(picture, 6, torch.Generator().manual_seed(0)).shape == (2, 3, 4, 6)


@given(seeds)
def test_the_loss_is_the_mean_over_pixels_that_have_a_class(seed: int) -> None:
    logits, painted = (torch.from_numpy(array) for array in made(seed))
    expected = functional.cross_entropy(logits, painted.long(), ignore_index=NOTHING)
    assert torch.allclose(task_loss.loss(logits, painted.long()), expected)


def test_masks_without_any_class_teach_nothing() -> None:
    logits = torch.randn(1, CLASSES, 4, 4, requires_grad=True)
    loss = task_loss.loss(logits, torch.full((1, 4, 4), NOTHING))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_recognised_pixels_are_those_where_no_class_has_more_than_the_right_one(order: torch.memory_format) -> None:
    logits = (
        torch.randn(3, CLASSES, 5, 4, generator=torch.Generator().manual_seed(0))
        .to(memory_format=order)
        .requires_grad_()
    )
    painted = torch.randint(0, CLASSES, (3, 5, 4), generator=torch.Generator().manual_seed(1))
    painted[0, :2], painted[2] = NOTHING, NOTHING
    hits = (logits.argmax(1) == painted).flatten(1).sum(1)
    found = task_loss.right(logits, painted)
    assert found.item() == pytest.approx(float(hits[0] / 12 + hits[1] / 20))
    assert not found.requires_grad


@given(seeds)
def test_losses_of_images_are_means_over_their_pixels(seed: int) -> None:
    logits, painted = made(seed)
    pixels = functional.cross_entropy(
        torch.from_numpy(logits).double(), torch.from_numpy(painted).long(), ignore_index=NOTHING, reduction="none"
    )
    expected = [float(image[mask != NOTHING].mean()) for image, mask in zip(pixels.numpy(), painted, strict=True)]
    assert losses(logits, painted).tolist() == pytest.approx(expected)


@given(seeds)
def test_metrics_are_those_of_all_pixels_at_once_however_they_come(seed: int) -> None:
    logits, painted = made(seed, count=4)
    counts = Segmentation(["a", "b", "c"], bins=10)
    counts.add(logits[:1], painted[:1])
    counts.add(logits[1:], painted[1:])
    found, ours, theirs = counts.summary(), torch.from_numpy(logits), torch.from_numpy(painted).long()
    ious = multiclass_jaccard_index(ours, theirs, CLASSES, average="none", ignore_index=NOTHING)
    assert list(found["per_class_iou"].values()) == pytest.approx(ious.tolist(), abs=1e-6)
    assert found["mean_iou"] == pytest.approx(float(ious.mean()), abs=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(1) == painted).sum() / (painted != NOTHING).sum())
    rows = ours.movedim(1, -1).flatten(0, -2)[theirs.flatten() != NOTHING]
    calibration = multiclass_calibration_error(rows.softmax(1), theirs[theirs != NOTHING], CLASSES, n_bins=10)
    assert found["calibration_error"] == pytest.approx(float(calibration), abs=1e-4)
    assert sum(found["pixel_share"].values()) == pytest.approx(1)


def test_a_class_that_is_neither_there_nor_predicted_does_not_count() -> None:
    counts = Segmentation(["a", "b", "never"], bins=10)
    logits = np.zeros((1, 3, 2, 2), np.float32)
    logits[0, 0] = 5
    counts.add(logits, np.array([[[0, 0], [0, 1]]], np.uint8))
    found = counts.summary()
    assert found["per_class_iou"] == {"a": pytest.approx(3 / 4), "b": 0.0, "never": None}
    assert found["mean_iou"] == pytest.approx(3 / 8)


@given(seeds)
def test_scores_of_dense_outputs_are_means_over_pixels(seed: int) -> None:
    said = scorers.said(made(seed)[0])
    for strategy in (Entropy(), Margin(), LeastConfidence()):
        by_pixel = np.stack(
            [
                strategy.scores(
                    Pool(np.arange(2), Outputs(said.logits_NC[:, :, y, x], said.probs_NC[:, :, y, x])),
                    np.random.default_rng(0),
                )
                for y in range(16)
                for x in range(24)
            ]
        )
        assert strategy.scores(Pool(np.arange(2), said), np.random.default_rng(0)).tolist() == pytest.approx(
            by_pixel.mean(axis=0).tolist()
        )


def test_what_is_kept_is_every_eighth_pixel_at_the_middle_of_its_square() -> None:
    grid = np.arange(20 * 24).reshape(20, 24)
    assert thinned(grid).tolist() == [[24 * y + x for x in (4, 12, 20)] for y in (4, 12)]
    assert per_image(np.ones((2, 3, 3))).tolist() == [1, 1]


def test_a_simulated_annotator_takes_classes_of_a_mask_for_others_as_often_as_told() -> None:
    painted = np.array([masks.encoded(mask) for mask in made(0, count=40)[1]], object)
    question = Question("c1", np.arange(40), painted, ["a", "b", "c"])
    right, wrong = (Simulated(noise=noise).answer(question, np.random.default_rng(0)) for noise in (0.0, 1.0))
    assert right.labels.tolist() == painted.tolist()
    assert (right.wrong, wrong.wrong) == (0, 40)
    truth, said = masks.decoded(painted.tolist()), masks.decoded(wrong.labels.tolist())
    assert ((truth == NOTHING) == (said == NOTHING)).all()
    assert (truth != said)[truth != NOTHING].all()
    assert said[said != NOTHING].max() < CLASSES


@pytest.mark.parametrize("cell", [b"", b"not a png", masks.encoded(np.zeros((2, 2, 3), np.uint8))])
def test_what_is_no_mask_is_refused(cell: bytes) -> None:
    with pytest.raises(DataError, match=r"^a mask "):
        masks.one(cell)


@pytest.mark.parametrize("room", [0, 3, 5, 100])
def test_masks_that_are_asked_for_again_are_decoded_once_as_far_as_there_is_room(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted, decoded = made(0, count=5)[1], list[bytes]()
    one = masks.one
    monkeypatch.setattr(masks, "one", lambda cell: (decoded.append(cell), one(cell))[1])
    targets = masks.Targets(np.array([masks.encoded(mask) for mask in painted], object), cache=room * painted[0].nbytes)
    for rows in ([4, 0, 2], [1, 3, 4], [2, 2, 0, 1]):
        assert np.array_equal(targets(np.array(rows)), painted[rows])
    again = [4, 2, 2, 0, 1]
    assert len(decoded) == 5 + sum(row not in [4, 0, 2, 1, 3][:room] for row in again)


def test_class_numbers_are_their_own_targets() -> None:
    assert masks.Targets(np.array([7, 8, 9], np.int32))(np.array([2, 0])).tolist() == [9, 7]


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A whole campaign, report and all. Read only."""
    workspace = created(tmp_path_factory.mktemp("streets"))
    workspace.change(
        **{f"{section}.{key}": value for section, values in STREETS.items() for key, value in values.items()}
    )
    with contextlib.chdir(workspace.root):
        for name in workspace.pipeline.names():
            stage, _, cycle = name.partition("@")
            workspace.run(stage, cycle or None)
    return workspace


def test_a_campaign_of_segmentation_has_all_its_files(streets: Workspace) -> None:
    for cycle in streets.pipeline.cycles:
        metrics = json.loads(streets.path("evaluate", "metrics", cycle).read_text())
        assert 0 < metrics["mean_iou"] < 1
        assert np.array(metrics["confusion"]).sum() == metrics_pixels(streets)
    page = (streets.path("report", "report") / "index.html").read_text()
    assert "mean IoU" in page
    assert "Class by class" in page


def metrics_pixels(streets: Workspace) -> int:
    """Pixels of the test split that have a class."""
    truth = tables.read(streets.path("evaluate", "test", "c1"), tables.TEST)
    return int((masks.decoded(truth["label"].to_pylist()) != NOTHING).sum())


def logits_of(streets: Workspace, cycle: str, ids: np.ndarray) -> np.ndarray:
    facts = dataset_info.opened(streets.path("prepare", "dataset"))
    network, _ = model_file.load_network(
        streets.path("train", "model", cycle), classes=len(facts.classes), shape=facts.shape
    )
    normalize = inference.Normalize(facts.mean, facts.std, torch.device("cpu"))
    take = image_store.opened(streets.path("score", "images", cycle)).take
    return np.concatenate([found for _, found in inference.logits(network, take, ids, normalize, 16)])


def test_scores_are_the_mean_discrepancy_of_the_pixels_kept(streets: Workspace) -> None:
    """Half the digits are kept of the last cycle's outputs: so many agree."""
    scores = tables.read(streets.path("score", "scores", "c2"), tables.SCORES)
    ids = scores["id"].to_numpy()
    now, before = (thinned(logits_of(streets, cycle, ids)) for cycle in ("c2", "c1"))
    expected = discrepancy(output_store.softmax(now), output_store.softmax(before))
    assert scores["score"].to_numpy() == pytest.approx(expected, abs=2e-3)
    assert np.ptp(expected) > 0.01


def test_recomputed_scores_are_of_every_pixel(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copied(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    copy.change(**{"score.previous": "recomputed"})
    copy.run("score", "c2")
    scores = tables.read(copy.path("score", "scores", "c2"), tables.SCORES)
    ids = scores["id"].to_numpy()
    expected = discrepancy(*(output_store.softmax(logits_of(streets, cycle, ids)) for cycle in ("c2", "c1")))
    assert scores["score"].to_numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "strategy",
    [{"name": "mc_dropout"}, {"name": "bald"}, {"name": "qbc", "members": [1]}],
    ids=lambda strategy: strategy["name"],
)
def test_passes_and_committees_score_pixels_however_they_come(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: dict[str, object]
) -> None:
    copy = streets.copied(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    found = []
    for batch_size in (16, 3):
        copy.change(**{"score.strategy": strategy, "score.batch_size": batch_size})
        copy.run("score", "c2")
        found.append(tables.read(copy.path("score", "scores", "c2"), tables.SCORES)["score"].to_numpy())
    assert found[0] == pytest.approx(found[1], abs=1e-7)
    assert np.ptp(found[0]) > 1e-4


@pytest.mark.parametrize("previous", ["kept", "recomputed"])
def test_the_true_loss_is_of_the_pixels_that_are_compared(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str
) -> None:
    copy = streets.copied(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    copy.change(
        **{
            "score.strategy": {"name": "true_loss"},
            "score.truth": "oracle",
            "score.previous": previous,
            "score.subset": 3,
            "score.batch_size": 2,
        }
    )
    copy.run("score", "c1")
    scores = tables.read(copy.path("score", "scores", "c1"), tables.SCORES)
    ids = scores["id"].to_numpy()
    logits, painted = logits_of(streets, "c1", ids), masks.decoded([truth_of(streets)[i] for i in ids.tolist()])
    expected = losses(thinned(logits), thinned(painted)) if previous == "kept" else losses(logits, painted)
    assert scores["score"].to_numpy() == pytest.approx(expected, abs=1e-6)
    assert len(ids) == 3


def truth_of(streets: Workspace) -> dict[int, bytes]:
    oracle = tables.read(streets.path("diagnose", "oracle", "c1"), tables.ORACLE)
    return dict(zip(oracle["id"].to_pylist(), oracle["label"].to_pylist(), strict=True))


def test_outputs_of_segmentation_are_kept_small(streets: Workspace) -> None:
    facts = dataset_info.opened(streets.path("prepare", "dataset"))
    rows = output_store.opened(streets.path("score", "outputs", "c1"), facts.outputs)
    assert rows.dtype == np.float16
    assert rows.shape == (len(facts.classes), facts.shape[1] // STRIDE, facts.shape[2] // STRIDE)


def test_diagnosed_losses_are_those_of_the_pixels_kept(streets: Workspace) -> None:
    told = json.loads(streets.path("diagnose", "diagnostics", "c1").read_text())
    truth = truth_of(streets)
    ids = tables.read(streets.path("score", "scores", "c1"), tables.SCORES)["id"].to_numpy()
    expected = losses(thinned(logits_of(streets, "c1", ids)), masks.decoded_thin([truth[i] for i in ids.tolist()]))
    assert told["mean_loss"] == pytest.approx(expected.mean(), abs=1e-3)
    assert sum(told["classes_in_query"]) > 0
    assert told["squared_gradient_norm"] is None


def test_a_model_for_images_is_refused_for_pixels(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copied(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    copy.change(**{"prepare.model": {"name": "small_cnn", "width": 4}})
    with pytest.raises(
        UserError,
        match=r"^params.yaml: prepare.model.name: found 'small_cnn', a model for classification; streets is for segmentation$",
    ):
        copy.run("prepare")


def test_a_mask_with_an_unknown_class_is_not_merged(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copied(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    path = copy.path("merge", "annotations", "c1")
    table = tables.read(path, tables.ANNOTATIONS)
    strange = masks.encoded(np.full((64, 96), 77, np.uint8))
    changed = tables.made(
        [table["id"].to_numpy(), np.array([strange] * len(table), object), table["annotator"].to_pylist()],
        tables.ANNOTATIONS,
    )
    tables.write(changed, tables.ANNOTATIONS, path)
    with pytest.raises(DataError, match="has label 77, expected 0 to 7"):
        copy.run("merge", "c1")


def test_a_guess_covers_an_image_whose_sides_are_no_multiples_of_eight(tmp_path: Path) -> None:
    facts = dataset_info.Dataset(
        task="segmentation", classes=["a", "b"], shape=(3, 20, 23), mean=[0.5] * 3, std=[0.5] * 3
    )
    with_classes = np.arange(2 * 3).reshape(1, 1, 2, 3) % 2 * np.array([0.0, 1.0], np.float16)[None, :, None, None]
    write_outputs(tmp_path / "outputs", facts, with_classes)
    (guess,) = query_images.guessed(np.array([7]), facts, tmp_path / "outputs")
    assert guess.shape == (20, 23)
    assert [[guess[y, x] for x in (0, 8, 16, 22)] for y in (0, 8, 19)] == [[0, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]


def write_outputs(path: Path, facts: dataset_info.Dataset, logits: np.ndarray) -> None:
    with output_store.writing(path, facts.outputs, "c1") as keep:
        keep(np.array([7]), logits)
