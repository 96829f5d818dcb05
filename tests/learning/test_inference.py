"""Streaming inference: every image once, in order, and the same bytes for every batch size."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from codline.data import dataset_info, image_store
from codline.learning.inference import Normalize, RequestedOutputs, batch_slices, forward_batches, stream_logits
from codline.learning.model_file import load_network
from codline.models.networks.network import Network
from tests.workspace import Workspace

CPU = torch.device("cpu")
SCALE_ONLY = Normalize([0.0], [1.0], CPU)


@given(st.integers(0, 500), st.integers(2, 60))
def test_batch_slices_cover_every_row_once_and_in_order(count: int, size: int) -> None:
    assert [row for rows in batch_slices(count, size) for row in range(count)[rows]] == list(range(count))


@given(st.integers(1, 500), st.integers(2, 64), st.integers(2, 16))
def test_batch_slices_have_at_least_the_smallest_number_of_rows(count: int, size: int, smallest: int) -> None:
    lengths = [len(range(count)[rows]) for rows in batch_slices(count, size, min(smallest, size))]
    assert sum(lengths) == count
    assert len(lengths) == 1 or min(lengths) >= min(smallest, size)
    assert max(lengths) < size + min(smallest, size)


@given(st.integers(0, 500), st.integers(2, 60))
def test_batch_slices_have_at_least_two_rows_if_there_are_two(count: int, size: int) -> None:
    lengths = [len(range(count)[rows]) for rows in batch_slices(count, size)]
    assert lengths == [1] if count == 1 else all(2 <= length <= size + 1 for length in lengths)


def logits_of_all_images(workspace: Workspace, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    info = dataset_info.read_dataset_info(workspace.path("train", "dataset", "c1"))
    network, _ = load_network(workspace.path("train", "model", "c1"), classes=len(info.classes), shape=info.shape)
    store = image_store.open_image_store(workspace.path("train", "images", "c1"))
    batches = stream_logits(network, store.take, store.ids, Normalize(info.mean, info.std, CPU), batch_size)
    ids, logits = zip(*batches, strict=True)
    return np.concatenate(ids), np.concatenate(logits)


def test_logits_are_the_same_bytes_for_every_batch_size(workspace: Workspace) -> None:
    expected_ids, expected = logits_of_all_images(workspace, 512)
    for batch_size in (1, 2, 7, 64, 100, 1024):
        ids, logits = logits_of_all_images(workspace, batch_size)
        assert np.array_equal(ids, expected_ids)
        assert logits.tobytes() == expected.tobytes()


def test_logits_are_computed_in_evaluation_mode() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)), nn.Dropout(0.5)).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    pixels = np.arange(6 * 4, dtype=np.uint8).reshape(6, 1, 2, 2)
    ((_, logits),) = stream_logits(network, pixels.__getitem__, np.arange(6), SCALE_ONLY, batch_size=6)
    assert logits == pytest.approx(pixels.reshape(6, 4) / 255 / np.sqrt(1 + 1e-5), rel=1e-6)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_images_are_not_read_before_their_batch() -> None:
    """Memory does not grow with the pool: of a million images, the first batch reads four."""
    taken: list[int] = []

    def take(ids: np.ndarray) -> np.ndarray:
        taken.extend(ids)
        return np.zeros((len(ids), 1, 2, 2), np.uint8)

    network = Network(nn.Flatten(), nn.Identity())
    next(stream_logits(network, take, np.arange(1_000_000), SCALE_ONLY, batch_size=4))
    assert taken == [0, 1, 2, 3]


def test_normalize_standardizes_each_channel() -> None:
    normalize = Normalize([0.5, 0.0], [0.5, 2.0], CPU)
    pixels = torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 2, 1, 1)
    assert normalize(pixels).flatten().tolist() == [-1.0, 0.5]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_normalize_returns_channels_last_and_leaves_its_input_unchanged(
    channels: int, memory_format: torch.memory_format
) -> None:
    mean, std = [0.49, 0.48, 0.44][:channels], [0.2, 0.21, 0.22][:channels]
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (5, channels, 6, 4), dtype=torch.uint8, generator=generator)
    pixels = pixels.to(memory_format=memory_format)
    before = pixels.clone()
    normalized = Normalize(mean, std, CPU)(pixels)
    scaled = pixels.float() / 255
    expected = torch.stack([(scaled[:, i] - mean[i]) / std[i] for i in range(channels)], 1)
    assert torch.equal(normalized, expected)
    assert normalized.stride() == (6 * 4 * channels, 1, 4 * channels, channels)
    assert torch.equal(pixels, before)


def test_features_are_the_inputs_of_the_head_averaged_over_the_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), np.uint8)
    normalize, requested = Normalize([0.0] * 3, [1.0] * 3, CPU), RequestedOutputs(features=True)
    flat, dense = Network(nn.Flatten(), nn.Linear(48, 2)), Network(nn.Identity(), nn.Conv2d(3, 2, 1))
    for network, expected in ((flat, pixels.reshape(6, 48) / 255), (dense, pixels.mean((2, 3)) / 255)):
        (batch,) = forward_batches([network], pixels.__getitem__, np.arange(6), normalize, 6, requested)
        assert batch.features == pytest.approx(expected, rel=1e-5)


def test_dropout_passes_drop_the_same_features_of_every_image_for_every_batch_size() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 1, 2, 2), np.uint8)
    network, factors = Network(nn.Flatten(), nn.Linear(4, 3)).eval(), torch.tensor([[0.0, 2, 2, 0], [2, 0, 0, 2]])
    requested = RequestedOutputs(dropout_factors=factors)
    logits = []  # (passes, images, classes) for each batch size
    for batch_size in (6, 2):
        batches = forward_batches([network], pixels.__getitem__, np.arange(6), SCALE_ONLY, batch_size, requested)
        logits.append(np.concatenate([list(batch.dropout_logits) for batch in batches], axis=1))
    inputs = torch.from_numpy(pixels.reshape(6, 4) / 255).float()
    expected = [network.head(inputs * factor).detach().numpy() for factor in factors]
    assert logits[0] == pytest.approx(np.array(expected), abs=1e-6)
    assert np.array_equal(logits[0], logits[1])
