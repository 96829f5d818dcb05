"""fixmatch: its loss by hand, and the strong augmentation."""

import pytest
import torch
from torch import Generator, Tensor

from codline.core.errors import UserError
from codline.models.networks.batch_parts import BatchDraws, whole_batch
from codline.objectives.base import TrainingBatch
from codline.objectives.fixmatch import FixmatchObjective
from codline.objectives.modules import strong_augmentation
from codline.objectives.modules.pseudo_labels import PseudoLabels
from codline.objectives.modules.strong_augmentation import OPERATIONS, augment_strongly, erase_square, warp

FULL = torch.ones(1, 1, 1, 1)


def make_generator(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def make_draws(images: Tensor, seed: int = 0) -> BatchDraws:
    return BatchDraws(make_generator(seed), whole_batch(len(images)))


def random_images(count: int, channels: int = 3, size: int = 16) -> Tensor:
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=make_generator(0))


def test_loss_is_the_cross_entropy_of_the_strong_view_where_the_prediction_is_confident() -> None:
    weak = torch.tensor([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 1.0, 1.0]], requires_grad=True)
    strong = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [9.0, 0.0, 0.0]], requires_grad=True)
    batch = TrainingBatch(torch.zeros(4, 1), torch.zeros(4, 1), weak, view_logits=strong)
    loss = PseudoLabels(FixmatchObjective(weight=2.0, threshold=0.9)).loss(batch, batch)
    confident = [-strong.log_softmax(1)[0, 0], -strong.log_softmax(1)[2, 2]]  # 0.96 and 0.99; the others 0.58 and 0.33
    assert float(loss.detach()) == pytest.approx(2 * float(sum(confident).detach()) / 4)
    loss.backward()  # type: ignore[no-untyped-call]
    assert weak.grad is None
    assert strong.grad is not None
    assert (strong.grad.abs().sum(1) > 0).tolist() == [True, False, True, False]


def test_segmentation_is_refused_with_one_sentence() -> None:
    FixmatchObjective().check_task("classification")
    sentence = r"^params\.yaml: train\.objectives: found 'fixmatch', which is not defined for segmentation$"
    with pytest.raises(UserError, match=sentence):
        FixmatchObjective().check_task("segmentation")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_strong_augmentation_follows_the_generator_and_changes_nearly_every_image(channels: int) -> None:
    images = random_images(64, channels)
    before = images.clone()
    first, again, other = (augment_strongly(images, 1.0, make_draws(images, seed)) for seed in (1, 1, 2))
    assert torch.equal(images, before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (first.dtype, first.shape) == (torch.uint8, images.shape)
    assert (first != images).flatten(1).any(1).float().mean() > 0.95


def test_every_operation_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    watched = [lambda images, _, number=number: drawn.add(number) or images for number in range(len(OPERATIONS))]
    monkeypatch.setattr(strong_augmentation, "OPERATIONS", watched)
    images = random_images(128)
    augment_strongly(images, 1.0, make_draws(images))
    assert drawn == set(range(len(OPERATIONS)))


@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda each: getattr(each, "__name__", str(getattr(each, "keywords", "")))
)
def test_operation_treats_each_image_by_itself(operation: strong_augmentation.Operation) -> None:
    images, magnitudes = random_images(4).float(), torch.tensor([0.9, -0.8, 0.1, -0.2])[:, None, None, None]
    together = operation(images, magnitudes)
    alone = torch.cat([operation(images[i : i + 1], magnitudes[i : i + 1]) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("identity", [0, 100, 200, 250]),
        ("brightness", [0, 190, 255, 255]),
        ("contrast", [0, 66, 255, 255]),
        ("posterize", [0, 96, 192, 240]),
        ("solarize", [255, 155, 55, 5]),
        ("autocontrast", [0, 102, 204, 255]),
        ("equalize", [0, 85, 170, 255]),
    ],
)
def test_operation_computes_pixels_as_by_hand(name: str, expected: list[int]) -> None:
    pixels = torch.tensor([0.0, 100.0, 200.0, 250.0]).view(1, 1, 2, 2)
    assert getattr(strong_augmentation, name)(pixels, FULL).round().clamp(0, 255).flatten().tolist() == expected


def test_saturation_of_minus_one_is_nearly_grey_and_sharpness_leaves_flat_images() -> None:
    image = torch.tensor([250.0, 0.0, 0.0]).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    red, green, blue = strong_augmentation.saturation(image, -FULL)[0, :, 0, 0].tolist()
    assert (red, green, blue) == pytest.approx((0.1 * 250 + 0.9 * 74.75, 0.9 * 74.75, 0.9 * 74.75))
    assert torch.allclose(strong_augmentation.sharpness(image, -FULL), image, atol=1e-3)


def test_warp_shifts_and_turns_images_that_are_not_square() -> None:
    image = torch.zeros(1, 1, 4, 8)
    image[0, 0, 1, 2] = 200
    shifted = warp(image, -FULL, shift=(0.25, 0.0))  # samples 2 pixels to the left, so pixels move to the right
    assert shifted[0, 0].nonzero().tolist() == [[1, 4]]
    turned = warp(image, FULL, turn=torch.pi).round()
    assert turned[0, 0].nonzero().tolist() == [[2, 5]]
    quarter = warp(image, FULL, turn=torch.pi / 2).round()  # 1.5 left and 0.5 up of the center
    assert quarter[0, 0].nonzero().tolist() == [[3, 3]]


def test_erased_square_is_grey_and_at_most_half_as_wide_as_the_image() -> None:
    images = torch.zeros(200, 1, 16, 16, dtype=torch.uint8)
    erased = erase_square(images, 1.0, make_draws(images)) == 127
    assert erased.flatten(1).sum(1).amax() == 8 * 8
    assert erased.any(0).all()
    assert erase_square(images, 0.5, make_draws(images)).eq(127).flatten(1).sum(1).amax() == 4 * 4
