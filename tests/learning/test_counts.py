"""Cost, counted instead of timed: images through a network, images read, memory, files synced."""

import os
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from codline.data import image_store, tables
from codline.data.array_store import ArrayStore
from codline.data.labels import unlabeled_ids
from codline.learning.fit import fit
from codline.learning.inference import Normalize, RequestedOutputs, forward_batches
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from tests.learning.test_fit import EPOCHS, FIRST_CYCLE, make_data, make_network, make_recipe
from tests.workspace import Workspace


@contextmanager
def count_images() -> Iterator[Counter[int]]:
    """{network: number of images that went through its body}."""
    images: Counter[int] = Counter()
    original = Network.__init__

    def init_and_count(self: Network, body: nn.Module, *arguments: Any, **named: Any) -> None:
        original(self, body, *arguments, **named)
        body.register_forward_pre_hook(lambda _, inputs: images.update({id(body): len(inputs[0])}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "__init__", init_and_count)
        yield images


def padded(count: int) -> int:
    """Batches are padded to a multiple of eight images."""
    return -(-count // 8) * 8


def unlabeled_count(workspace: Workspace) -> int:
    return len(unlabeled_ids(workspace.path("score", "pool", "c2"), workspace.path("score", "labeled", "c2")))


# feature_dropout, like mc_dropout and bald, runs one more image, to count the features.
@pytest.mark.parametrize(
    ("name", "additional"),
    [("cod", 0), ("random", 0), ("entropy", 0), ("margin", 0), ("feature_dropout", 1)],
)
def test_score_runs_every_image_through_one_network_once(workspace: Workspace, name: str, additional: int) -> None:
    workspace.change(**{"score.strategy": {"name": name}, "score.batch_size": 64})
    with count_images() as images:
        workspace.run("score", "c2")
    assert sorted(images.values()) == [padded(unlabeled_count(workspace)) + additional]


def test_score_runs_two_networks_if_previous_outputs_are_recomputed(workspace: Workspace) -> None:
    workspace.change(**{"score.previous": "recomputed", "score.batch_size": 64})
    with count_images() as images:
        workspace.run("score", "c2")
    assert sorted(images.values()) == [padded(unlabeled_count(workspace))] * 2


def test_score_with_a_batch_strategy_also_runs_the_labeled_images(workspace: Workspace) -> None:
    workspace.change(**{"score.strategy": {"name": "core_set"}, "score.batch_size": 64})
    with count_images() as images:
        workspace.run("score", "c2")
    labeled = tables.count_rows(workspace.path("score", "labeled", "c2"), tables.LABELED)
    blank = 1  # whose outputs tell how much memory the pool would take
    assert sorted(images.values()) == [padded(unlabeled_count(workspace)) + padded(labeled) + blank]


def test_score_reads_every_image_and_every_previous_output_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()
    copy_arrays = ArrayStore.copy_arrays

    def copy_and_count(self: ArrayStore, ids: np.ndarray, target: np.ndarray, places: np.ndarray) -> None:
        copy_arrays(self, ids, target, places)
        read.update({self.path.name: target[places].nbytes})

    monkeypatch.setattr(ArrayStore, "copy_arrays", copy_and_count)
    workspace.run("score", "c2")
    count = unlabeled_count(workspace)
    assert read == {"00000.arrow": count * 64, "outputs.parquet": count * 10 * 4}


@pytest.mark.parametrize(("objective", "passes"), [("none", 0), ("ema", 2)])
def test_fit_runs_labeled_images_once_and_unlabeled_ones_through_network_and_teacher(
    objective: str, passes: int
) -> None:
    with count_images() as images:
        fit(make_network(), make_data(), make_recipe(objective), FIRST_CYCLE, seed=0)
    labeled, unlabeled = 8 + 8 + 9, 8 + 8 + 8  # of 25 labeled images, the last one joins the last batch
    assert sum(images.values()) == EPOCHS * (labeled + passes * unlabeled)


def peak_memory(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_forward_batches_holds_one_batch_in_memory(tmp_path: Path) -> None:
    count, ids, normalize = 4000, np.arange(4000), Normalize([0.5], [0.2], torch.device("cpu"))
    image_store.write_images(tmp_path / "images", ids, np.zeros((count, 1, 8, 8), np.uint8))
    store = image_store.open_image_store(tmp_path / "images")
    network = SmallCnn(width=4).initial_network(10, (1, 8, 8), 0)

    def run_first(number: int) -> None:
        for _ in forward_batches([network], store.take, ids[:number], normalize, 100, RequestedOutputs()):
            pass

    run_first(200)
    assert peak_memory(lambda: run_first(count)) < 1.2 * peak_memory(lambda: run_first(400))


def test_score_syncs_each_file_and_its_directory_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), fsync(file))[1])
    workspace.change(**{"score.batch_size": 8})
    workspace.run("score", "c2")
    assert unlabeled_count(workspace) > 8 * 10
    assert len(synced) == 4  # outputs, scores, and the directory after each


@pytest.mark.parametrize(("picker", "passes"), [("top", 1), ("softmax", 1), ("class_balanced", 1), ("power", 2)])
def test_select_reads_scores_once_unless_the_lowest_is_needed_first(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, picker: str, passes: int
) -> None:
    workspace.change(**{"select.pick": {"name": picker}})
    read, read_chunks = list[Path](), tables.read_chunks
    monkeypatch.setattr(tables, "read_chunks", lambda path, schema: (read.append(path), read_chunks(path, schema))[1])
    workspace.run("select", "c2")
    assert len(read) == passes


def test_select_with_top_reads_no_outputs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayStore, "take", lambda self, ids: pytest.fail(f"read {len(ids)} rows of {self.path}"))
    workspace.run("select", "c2")
