"""Segmentation: masks, dense losses and metrics, and a whole campaign through the same stages."""

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
from codline.annotators.base import AnnotationRequest
from codline.annotators.simulated import Simulated
from codline.core.errors import DataError, UserError
from codline.data import dataset_info, image_store, masks, output_store, tables
from codline.data.dense_outputs import IGNORE_INDEX, STRIDE, mean_per_image, subsample_pixels
from codline.evaluation.metrics import SegmentationMetrics
from codline.learning import inference, model_file, task_loss
from codline.learning.augmentation import Augmentation
from codline.learning.image_losses import image_losses
from codline.learning.image_transforms import random_square
from codline.models.networks.batch_parts import BatchDraws, whole_batch
from codline.report import query_images
from codline.scoring import scorers
from codline.strategies.base import Outputs, PoolChunk
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from tests.workspace import Workspace, create_workspace

CLASSES = 3
STREETS = {
    "prepare": {"dataset": {"name": "streets", "count": 60}, "model": {"name": "small_unet", "width": 4}, "start": 0.2},
    "train": {
        "epochs": 2,
        "batch_size": 8,
        "augment": {"crop": 4, "flip": True},
        "objectives": [{"name": "ema"}],
        "snapshots": [1],
    },
    "score": {"strategy": {"name": "cod"}, "batch_size": 16},
    "evaluate": {"batch_size": 16, "calibration_bins": 15},
}
seeds = st.integers(0, 10**6)


def random_logits_and_masks(seed: int, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Logits and masks; some pixels have no class."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, CLASSES, (count, 16, 24), np.uint8)
    logits = rng.normal(size=(count, CLASSES, 16, 24)).astype(np.float32) * 3
    return logits, np.where(rng.random(classes.shape) < 0.1, IGNORE_INDEX, classes).astype(np.uint8)


@given(seeds, st.integers(0, 3), st.booleans(), st.sampled_from([None, 5]))
def test_augmentation_with_masks_moves_both_alike_and_padding_has_no_class(
    seed: int, crop: int, flip: bool, size: int | None
) -> None:
    original = torch.randint(0, 255, (3, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    pixels = (original + 1)[:, None]  # one more than the pixel's class; padding is 0
    augmentation = Augmentation(crop=crop, flip=flip, size=size)
    images, targets = augmentation.with_masks(pixels, original, torch.Generator().manual_seed(seed))
    assert torch.equal(images[:, 0] - 1, targets)
    assert targets.dtype == torch.uint8
    assert crop or not (targets == IGNORE_INDEX).any()


def make_draws(count: int) -> BatchDraws:
    return BatchDraws(torch.Generator().manual_seed(0), whole_batch(count))


def test_random_square_has_every_position_within_the_image() -> None:
    images = torch.arange(30).reshape(1, 1, 5, 6).repeat(200, 1, 1, 1)
    squares = random_square(images, 3, make_draws(200))
    assert squares.shape == (200, 1, 3, 3)
    corners = squares[:, 0, 0, 0]
    assert set(corners.tolist()) == {6 * top + left for top in range(3) for left in range(4)}
    offsets = 6 * torch.arange(3)[:, None] + torch.arange(3)
    assert torch.equal(squares[:, 0], corners[:, None, None] + offsets)


def test_random_square_keeps_a_side_that_is_too_short_whole() -> None:
    assert random_square(torch.rand(2, 3, 4, 9), 6, make_draws(2)).shape == (2, 3, 4, 6)


@given(seeds)
def test_mean_loss_is_over_the_pixels_that_have_a_class(seed: int) -> None:
    logits, painted = (torch.from_numpy(array) for array in random_logits_and_masks(seed))
    expected = functional.cross_entropy(logits, painted.long(), ignore_index=IGNORE_INDEX)
    assert torch.allclose(task_loss.mean_loss(logits, painted.long()), expected)


def test_mean_loss_of_masks_without_any_class_has_no_gradient() -> None:
    logits = torch.randn(1, CLASSES, 4, 4, requires_grad=True)
    loss = task_loss.mean_loss(logits, torch.full((1, 4, 4), IGNORE_INDEX))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_correct_count_adds_up_the_fractions_of_correct_pixels(memory_format: torch.memory_format) -> None:
    logits = torch.randn(3, CLASSES, 5, 4, generator=torch.Generator().manual_seed(0))
    logits = logits.to(memory_format=memory_format).requires_grad_()
    targets = torch.randint(0, CLASSES, (3, 5, 4), generator=torch.Generator().manual_seed(1))
    targets[0, :2], targets[2] = IGNORE_INDEX, IGNORE_INDEX
    correct = (logits.argmax(1) == targets).flatten(1).sum(1)
    count = task_loss.correct_count(logits, targets)
    assert count.item() == pytest.approx(float(correct[0] / 12 + correct[1] / 20))
    assert not count.requires_grad


@given(seeds)
def test_image_losses_are_means_over_the_pixels(seed: int) -> None:
    logits, painted = random_logits_and_masks(seed)
    targets = torch.from_numpy(painted).long()
    pixel_losses = functional.cross_entropy(
        torch.from_numpy(logits).double(), targets, ignore_index=IGNORE_INDEX, reduction="none"
    )
    pairs = zip(pixel_losses, targets, strict=True)
    expected = [float(image[target != IGNORE_INDEX].mean()) for image, target in pairs]
    assert image_losses(logits, painted).tolist() == pytest.approx(expected)


@given(seeds)
def test_segmentation_metrics_are_those_of_all_pixels_for_every_batch_size(seed: int) -> None:
    logits, painted = random_logits_and_masks(seed, count=4)
    metrics = SegmentationMetrics(["a", "b", "c"], bins=10)
    metrics.add(logits[:1], painted[:1])
    metrics.add(logits[1:], painted[1:])
    summary, all_logits, targets = (
        metrics.metrics() | metrics.details(),
        torch.from_numpy(logits),
        torch.from_numpy(painted).long(),
    )
    ious = multiclass_jaccard_index(all_logits, targets, CLASSES, average="none", ignore_index=IGNORE_INDEX)
    assert list(summary["per_class_iou"].values()) == pytest.approx(ious.tolist(), abs=1e-6)
    assert summary["mean_iou"] == pytest.approx(float(ious.mean()), abs=1e-6)
    assert summary["accuracy"] == pytest.approx((logits.argmax(1) == painted).sum() / (painted != IGNORE_INDEX).sum())
    rows = all_logits.movedim(1, -1).flatten(0, -2)[targets.flatten() != IGNORE_INDEX]
    calibration = multiclass_calibration_error(rows.softmax(1), targets[targets != IGNORE_INDEX], CLASSES, n_bins=10)
    assert summary["calibration_error"] == pytest.approx(float(calibration), abs=1e-4)
    assert sum(summary["pixel_share"].values()) == pytest.approx(1)


@pytest.mark.parametrize("is_predicted", [False, True])
def test_mean_iou_leaves_out_a_class_without_test_pixels(is_predicted: bool) -> None:
    metrics = SegmentationMetrics(["a", "b", "never"], bins=10)
    logits = np.zeros((1, 3, 2, 2), np.float32)
    logits[0, 0], logits[0, 2, 1, 1] = 5, 10 * is_predicted
    metrics.add(logits, np.array([[[0, 0], [0, 1]]], np.uint8))
    details, iou = metrics.details(), 1.0 if is_predicted else 3 / 4
    assert details["per_class_iou"] == {"a": pytest.approx(iou), "b": 0.0, "never": None}
    assert details["per_class_accuracy"]["never"] is None
    assert details["per_class_images"] == {"a": 1, "b": 1, "never": 0}
    assert metrics.mean_iou() == pytest.approx(iou / 2)


@given(seeds)
def test_scores_of_dense_outputs_are_means_over_pixels(seed: int) -> None:
    outputs = scorers.outputs_from_logits(random_logits_and_masks(seed)[0])
    pixels = [
        Outputs(outputs.logits_NC[:, :, y, x], outputs.probs_NC[:, :, y, x]) for y in range(16) for x in range(24)
    ]
    for strategy in (Entropy(), Margin(), LeastConfidence()):
        scores, *pixel_scores = (
            strategy.scores(PoolChunk(np.arange(2), each), np.random.default_rng(0)) for each in (outputs, *pixels)
        )
        assert scores.tolist() == pytest.approx(np.mean(pixel_scores, axis=0).tolist())


def test_subsample_pixels_takes_the_middle_of_every_square_of_eight_by_eight() -> None:
    grid = np.arange(20 * 24).reshape(20, 24)
    assert subsample_pixels(grid).tolist() == [[24 * y + x for x in (4, 12, 20)] for y in (4, 12)]
    assert mean_per_image(np.ones((2, 3, 3))).tolist() == [1, 1]


def test_simulated_annotator_changes_every_class_of_a_mask_with_noise_1_and_none_with_0() -> None:
    labels = np.array([masks.encode_mask(mask) for mask in random_logits_and_masks(0, count=40)[1]], object)
    request = AnnotationRequest("c1", np.arange(40), labels, ["a", "b", "c"])
    correct, wrong = (Simulated(noise=noise).annotate(request, np.random.default_rng(0)) for noise in (0.0, 1.0))
    assert correct.labels.tolist() == labels.tolist()
    assert (correct.wrong_count, wrong.wrong_count) == (0, 40)
    truth, answers = masks.decode_masks(labels.tolist()), masks.decode_masks(wrong.labels.tolist())
    assert ((truth == IGNORE_INDEX) == (answers == IGNORE_INDEX)).all()
    assert (truth != answers)[truth != IGNORE_INDEX].all()
    assert answers[answers != IGNORE_INDEX].max() < CLASSES


@pytest.mark.parametrize("cell", [b"", b"not a png", masks.encode_mask(np.zeros((2, 2, 3), np.uint8))])
def test_decode_mask_refuses_other_data(cell: bytes) -> None:
    with pytest.raises(DataError, match=r"^a mask "):
        masks.decode_mask(cell)


def test_masks_with_a_class_outside_the_classes_are_refused() -> None:
    cell = masks.encode_mask(np.array([[0, 4], [IGNORE_INDEX, 2]], np.uint8))
    assert masks.decode_mask(cell, classes=5).tolist() == [[0, 4], [IGNORE_INDEX, 2]]
    sentence = "a mask has class 4, expected 0 to 3, or 255 for no class"
    for decode in (masks.decode_targets, masks.decode_subsampled_targets):
        with pytest.raises(DataError, match=sentence):
            decode(np.array([cell, None], object)[:1], 4)
    with pytest.raises(DataError, match=sentence):
        masks.CachedTargets(np.array([cell, None], object), classes=4)(np.array([0]))


@pytest.mark.parametrize("capacity", [0, 3, 5, 100])
def test_cached_targets_decode_a_mask_once_if_it_fits_the_cache(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    painted, decoded = random_logits_and_masks(0, count=5)[1], list[bytes]()
    decode_mask = masks.decode_mask
    monkeypatch.setattr(masks, "decode_mask", lambda cell, _: (decoded.append(cell), decode_mask(cell))[1])
    cells = np.array([masks.encode_mask(mask) for mask in painted], object)
    targets = masks.CachedTargets(cells, cache=capacity * painted[0].nbytes)
    for rows in ([4, 0, 2], [1, 3, 4], [2, 2, 0, 1]):
        assert np.array_equal(targets(np.array(rows)), painted[rows])
    repeated = [4, 2, 2, 0, 1]
    assert len(decoded) == 5 + sum(row not in [4, 0, 2, 1, 3][:capacity] for row in repeated)


def test_cached_targets_of_class_numbers_are_the_numbers() -> None:
    assert masks.CachedTargets(np.array([7, 8, 9], np.int32))(np.array([2, 0])).tolist() == [9, 7]


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A whole campaign with its report. Read only."""
    workspace = create_workspace(tmp_path_factory.mktemp("streets"))
    for section, values in STREETS.items():
        workspace.change(**{f"{section}.{key}": value for key, value in values.items()})
    with contextlib.chdir(workspace.root):
        for name in workspace.pipeline.stage_names():
            stage, _, cycle = name.partition("@")
            workspace.run(stage, cycle or None)
    return workspace


def test_segmentation_campaign_writes_metrics_and_report(streets: Workspace) -> None:
    for cycle in streets.pipeline.cycles:
        paths = (streets.path("evaluate", name, cycle) for name in ("metrics", "details"))
        metrics, details = (json.loads(path.read_text()) for path in paths)
        assert 0 < metrics["mean_iou_low"] < metrics["mean_iou"] < metrics["mean_iou_high"] < 1
        assert 0 <= metrics["validation_mean_iou"] < 1
        assert np.array(details["confusion"]).sum() == labeled_test_pixels(streets)
    page = (streets.path("report", "report") / "index.html").read_text()
    assert "mean IoU" in page
    assert "IoU by class" in page


def labeled_test_pixels(streets: Workspace) -> int:
    """Number of pixels of the test split that have a class."""
    truth = tables.read_table(streets.path("evaluate", "test", "c1"), tables.TEST)
    return int((masks.decode_masks(truth["label"].to_pylist()) != IGNORE_INDEX).sum())


def full_logits(streets: Workspace, cycle: str, ids: np.ndarray) -> np.ndarray:
    info = dataset_info.read_dataset_info(streets.path("prepare", "dataset"))
    network, _ = model_file.load_network(
        streets.path("train", "model", cycle), classes=len(info.classes), shape=info.shape
    )
    normalize = inference.Normalize(info.mean, info.std, torch.device("cpu"))
    take = image_store.open_image_store(streets.path("score", "images", cycle)).take
    return np.concatenate([logits for _, logits in inference.stream_logits(network, take, ids, normalize, 16)])


def test_cod_scores_are_the_mean_discrepancy_of_the_stored_pixels(streets: Workspace) -> None:
    """The previous cycle's outputs are stored in float16, hence the tolerance."""
    scores = tables.read_table(streets.path("score", "scores", "c2"), tables.SCORES)
    ids = scores["id"].to_numpy()
    now, before = (subsample_pixels(full_logits(streets, cycle, ids)) for cycle in ("c2", "c1"))
    expected = discrepancy(output_store.softmax(now), output_store.softmax(before))
    assert scores["score"].to_numpy() == pytest.approx(expected, abs=2e-3)
    assert np.ptp(expected) > 0.005


def test_cod_scores_with_recomputed_outputs_use_every_pixel(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copy_to(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    copy.change(**{"score.previous": "recomputed"})
    copy.run("score", "c2")
    scores = tables.read_table(copy.path("score", "scores", "c2"), tables.SCORES)
    ids = scores["id"].to_numpy()
    expected = discrepancy(*(output_store.softmax(full_logits(streets, cycle, ids)) for cycle in ("c2", "c1")))
    assert scores["score"].to_numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "feature_dropout"},
        {"name": "feature_dropout", "by": "mutual_information"},
        {"name": "snapshot_committee", "members": [1]},
    ],
    ids=str,
)
def test_dropout_and_committee_scores_of_pixels_do_not_depend_on_the_batch_size(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: dict[str, object]
) -> None:
    copy = streets.copy_to(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    scores = []
    for batch_size in (16, 3):
        copy.change(**{"score.strategy": strategy, "score.batch_size": batch_size})
        copy.run("score", "c2")
        scores.append(tables.read_table(copy.path("score", "scores", "c2"), tables.SCORES)["score"].to_numpy())
    assert scores[0] == pytest.approx(scores[1], abs=1e-7)
    assert np.ptp(scores[0]) > 1e-4


@pytest.mark.parametrize("previous", ["stored", "recomputed"])
def test_true_loss_is_over_the_pixels_that_are_compared(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str
) -> None:
    copy = streets.copy_to(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    strategy = {"score.strategy": {"name": "true_loss"}, "score.truth": "oracle", "score.previous": previous}
    copy.change(**strategy, **{"score.subset": 3, "score.batch_size": 2})
    copy.run("score", "c1")
    scores = tables.read_table(copy.path("score", "scores", "c1"), tables.SCORES)
    ids = scores["id"].to_numpy()
    truth = true_masks(streets)
    logits, targets = full_logits(streets, "c1", ids), masks.decode_masks([truth[i] for i in ids.tolist()])
    if previous == "stored":
        logits, targets = subsample_pixels(logits), subsample_pixels(targets)
    assert scores["score"].to_numpy() == pytest.approx(image_losses(logits, targets), abs=1e-6)
    assert len(ids) == 3


def true_masks(streets: Workspace) -> dict[int, bytes]:
    oracle = tables.read_table(streets.path("diagnose", "oracle", "c1"), tables.ORACLE)
    return dict(zip(oracle["id"].to_pylist(), oracle["label"].to_pylist(), strict=True))


def test_stored_outputs_of_segmentation_are_float16_and_subsampled(streets: Workspace) -> None:
    info = dataset_info.read_dataset_info(streets.path("prepare", "dataset"))
    store = output_store.open_output_store(streets.path("score", "outputs", "c1"), info.output_shape)
    assert store.dtype == np.float16
    assert store.shape == (len(info.classes), info.shape[1] // STRIDE, info.shape[2] // STRIDE)


def test_diagnose_uses_the_losses_of_the_stored_pixels(streets: Workspace) -> None:
    diagnostics = json.loads(streets.path("diagnose", "diagnostics", "c1").read_text())
    truth = true_masks(streets)
    ids = tables.read_table(streets.path("score", "scores", "c1"), tables.SCORES)["id"].to_numpy()
    targets = masks.decode_subsampled_masks([truth[i] for i in ids.tolist()])
    expected = image_losses(subsample_pixels(full_logits(streets, "c1", ids)), targets)
    assert diagnostics["mean_loss"] == pytest.approx(expected.mean(), abs=1e-3)
    assert sum(diagnostics["classes_in_query"]) > 0
    assert diagnostics["squared_gradient_norm"] is None


def test_prepare_refuses_a_classification_model_for_segmentation(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copy_to(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    copy.change(**{"prepare.model": {"name": "small_cnn", "width": 4}})
    refusal = "prepare.model.name: found 'small_cnn', a model for classification; streets is for segmentation$"
    with pytest.raises(UserError, match=refusal):
        copy.run("prepare")


def test_merge_refuses_a_mask_with_an_unknown_class(
    streets: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = streets.copy_to(tmp_path / "copy")
    monkeypatch.chdir(copy.root)
    path = copy.path("merge", "annotations", "c1")
    table = tables.read_table(path, tables.ANNOTATIONS)
    labels = np.array([masks.encode_mask(np.full((64, 96), 77, np.uint8))] * len(table), object)
    columns = [table["id"].to_numpy(), labels, table["annotator"].to_pylist()]
    tables.write_table(tables.make_table(columns, tables.ANNOTATIONS), tables.ANNOTATIONS, path)
    with pytest.raises(DataError, match="has label 77, expected 0 to 7"):
        copy.run("merge", "c1")


def test_predicted_masks_cover_images_whose_sides_are_no_multiples_of_eight(tmp_path: Path) -> None:
    info = dataset_info.DatasetInfo(
        task="segmentation", classes=["a", "b"], shape=(3, 20, 23), mean=[0.5] * 3, std=[0.5] * 3
    )
    logits = np.arange(2 * 3).reshape(1, 1, 2, 3) % 2 * np.array([0.0, 1.0], np.float16)[None, :, None, None]
    with output_store.output_writer(tmp_path / "outputs", info.output_shape, "c1") as write:
        write(np.array([7]), logits)
    (mask,) = query_images.predicted_masks(np.array([7]), info, tmp_path / "outputs")
    assert mask.shape == (20, 23)
    assert [[mask[y, x] for x in (0, 8, 16, 22)] for y in (0, 8, 19)] == [[0, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]
