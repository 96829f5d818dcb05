"""Streamed outputs: every image once, in order, and the same bytes whatever the batch size."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from codline.data import dataset_info, image_store
from codline.learning import inference, model_file
from codline.learning.inference import Normalize, Wanted, stretches
from codline.models.base import Network
from tests.workspace import Workspace


@given(st.integers(0, 500), st.integers(2, 60))
def test_stretches_cover_every_row_once_and_in_order(count: int, size: int) -> None:
    rows = [row for stretch in stretches(count, size) for row in range(count)[stretch]]
    assert rows == list(range(count))


@given(st.integers(0, 500), st.integers(2, 60))
def test_no_stretch_has_a_single_row_unless_there_is_but_one(count: int, size: int) -> None:
    lengths = [len(range(count)[stretch]) for stretch in stretches(count, size)]
    assert lengths == [1] if count == 1 else all(2 <= length <= size + 1 for length in lengths)


def logits_of(workspace: Workspace, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    facts = dataset_info.opened(workspace.path("train", "dataset", "c1"))
    network, _ = model_file.load_network(
        workspace.path("train", "model", "c1"), classes=len(facts.classes), shape=facts.shape
    )
    store = image_store.opened(workspace.path("train", "images", "c1"))
    ids, logits = zip(
        *inference.logits(
            network, store.take, store.ids, Normalize(facts.mean, facts.std, torch.device("cpu")), batch_size
        ),
        strict=True,
    )
    return np.concatenate(ids), np.concatenate(logits)


def test_outputs_are_the_same_bytes_for_every_batch_size(workspace: Workspace) -> None:
    ids, expected = logits_of(workspace, 512)
    for batch_size in (1, 2, 7, 64, 100, 1024):
        same_ids, found = logits_of(workspace, batch_size)
        assert np.array_equal(ids, same_ids)
        assert found.tobytes() == expected.tobytes()


def test_outputs_come_from_evaluation_mode_and_carry_no_gradient() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)), nn.Dropout(0.5)).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    pixels = np.arange(6 * 4, dtype=np.uint8).reshape(6, 1, 2, 2)
    ((_, logits),) = inference.logits(
        network, pixels.__getitem__, np.arange(6), Normalize([0.0], [1.0], torch.device("cpu")), 6
    )
    assert logits == pytest.approx(pixels.reshape(6, 4) / 255 / np.sqrt(1 + 1e-5), rel=1e-6)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_nothing_is_taken_before_it_is_needed() -> None:
    """Memory does not grow with the pool: of a million images, the first batch looks at four."""
    taken: list[int] = []

    def take(ids: np.ndarray) -> np.ndarray:
        taken.extend(ids)
        return np.zeros((len(ids), 1, 2, 2), np.uint8)

    next(
        inference.logits(
            Network(nn.Flatten(), nn.Identity()),
            take,
            np.arange(1_000_000),
            Normalize([0.0], [1.0], torch.device("cpu")),
            4,
        )
    )
    assert taken == [0, 1, 2, 3]


def test_images_are_standardised_channel_by_channel() -> None:
    normalize = Normalize([0.5, 0.0], [0.5, 2.0], torch.device("cpu"))
    pixels = torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 2, 1, 1)
    assert normalize(pixels).flatten().tolist() == [-1.0, 0.5]


def test_features_are_what_the_head_sees_and_of_maps_the_mean_over_their_pixels() -> None:
    pixels, normalize = (
        np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), np.uint8),
        Normalize([0.0] * 3, [1.0] * 3, torch.device("cpu")),
    )
    flat, dense = Network(nn.Flatten(), nn.Linear(48, 2)), Network(nn.Identity(), nn.Conv2d(3, 2, 1))
    for network, expected in ((flat, pixels.reshape(6, 48) / 255), (dense, pixels.mean((2, 3)) / 255)):
        (one,) = inference.passes([network], pixels.__getitem__, np.arange(6), normalize, 6, Wanted(features=True))
        assert one.features == pytest.approx(expected, rel=1e-5)


def test_stochastic_passes_drop_the_same_features_of_every_image_whatever_the_batches() -> None:
    pixels, normalize = (
        np.random.default_rng(0).integers(0, 256, (6, 1, 2, 2), np.uint8),
        Normalize([0.0], [1.0], torch.device("cpu")),
    )
    network, factors = Network(nn.Flatten(), nn.Linear(4, 3)).eval(), torch.tensor([[0.0, 2, 2, 0], [2, 0, 0, 2]])
    whole, parts = (
        [
            list(one.samples)
            for one in inference.passes(
                [network], pixels.__getitem__, np.arange(6), normalize, size, Wanted(dropouts=factors)
            )
        ]
        for size in (6, 2)
    )
    inputs = torch.from_numpy(pixels.reshape(6, 4) / 255).float()
    for number, row in enumerate(factors):
        assert whole[0][number] == pytest.approx(network.head(inputs * row).detach().numpy(), abs=1e-6)
        assert np.concatenate([part[number] for part in parts]).tolist() == whole[0][number].tolist()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_standardised_images_have_the_channels_of_a_pixel_side_by_side_and_the_bytes_stay(
    channels: int, order: torch.memory_format
) -> None:
    mean, std = [0.49, 0.48, 0.44][:channels], [0.2, 0.21, 0.22][:channels]
    image_store = torch.randint(
        0, 256, (5, channels, 6, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    ).to(memory_format=order)
    before = image_store.clone()
    found = Normalize(mean, std, torch.device("cpu"))(image_store)
    scaled = image_store.float() / 255
    expected = torch.stack([(scaled[:, i] - mean[i]) / std[i] for i in range(channels)], 1)
    assert torch.equal(found, expected)
    assert found.stride() == (6 * 4 * channels, 1, 4 * channels, channels)
    assert torch.equal(image_store, before)
