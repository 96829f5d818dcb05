"""What work takes, counted instead of timed: images through a network, images read, bytes held, tables opened."""

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
from codline.data.array_store import Arrays
from codline.data.labels import unlabeled
from codline.learning.fit import fit
from codline.learning.inference import Normalize, Wanted, passes
from codline.models.base import Network
from codline.models.small_cnn import SmallCnn
from tests.learning.test_fit import EPOCHS, examples, network, recipe
from tests.workspace import Workspace


@contextmanager
def forwarded() -> Iterator[Counter[int]]:
    """{network: images that went through its body}."""
    seen: Counter[int] = Counter()
    plain = Network.__init__

    def counting(self: Network, body: nn.Module, *others: Any, **named: Any) -> None:
        plain(self, body, *others, **named)
        body.register_forward_pre_hook(lambda _, inputs: seen.update({id(body): len(inputs[0])}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "__init__", counting)
        yield seen


def eights(count: int) -> int:
    """Batches are filled up to a multiple of eight images."""
    return -(-count // 8) * 8


def waiting(workspace: Workspace) -> int:
    return len(unlabeled(workspace.path("score", "pool", "c2"), workspace.path("score", "labeled", "c2")))


@pytest.mark.parametrize(
    ("name", "besides"),
    [
        ("cod", 0),
        ("random", 0),
        ("entropy", 0),
        ("margin", 0),
        ("mc_dropout", 1),
        ("bald", 1),
    ],  # one image, to see how many features there are
)
def test_scoring_takes_every_image_through_one_network_once(workspace: Workspace, name: str, besides: int) -> None:
    workspace.change(**{"score.strategy": {"name": name}, "score.batch_size": 64})
    with forwarded() as seen:
        workspace.run("score", "c2")
    assert sorted(seen.values()) == [eights(waiting(workspace)) + besides]


def test_scoring_without_kept_outputs_takes_two(workspace: Workspace) -> None:
    workspace.change(**{"score.previous": "recomputed", "score.batch_size": 64})
    with forwarded() as seen:
        workspace.run("score", "c2")
    assert sorted(seen.values()) == [eights(waiting(workspace))] * 2


def test_choosing_whole_queries_takes_labeled_images_through_the_network_besides(workspace: Workspace) -> None:
    workspace.change(**{"score.strategy": {"name": "core_set"}, "score.batch_size": 64})
    with forwarded() as seen:
        workspace.run("score", "c2")
    known = tables.count(workspace.path("score", "labeled", "c2"), tables.LABELED)
    assert sorted(seen.values()) == [eights(waiting(workspace)) + eights(known)]


def test_scoring_reads_every_image_and_every_kept_output_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()
    take = Arrays.take
    monkeypatch.setattr(
        Arrays, "take", lambda self, ids: (taken := take(self, ids), read.update({self.path.name: taken.nbytes}))[0]
    )
    workspace.run("score", "c2")
    count = waiting(workspace)
    assert read == {"images.arrow": count * 64, "outputs.parquet": count * 10 * 4}


@pytest.mark.parametrize(("objective", "factor"), [("none", 1), ("ema", 3)])
def test_training_takes_a_batch_through_the_network_once_and_through_the_average_once(
    objective: str, factor: int
) -> None:
    """With the unsupervised loss: labelled images, as many unlabelled ones, and these through the average too."""
    with forwarded() as seen:
        net, some = network(), examples()
        fit(net, some, recipe(objective), seed=0, resume=None, on_epoch=lambda _: None)
    batches = (8, 8, 9)  # of 25 images: one alone joins its neighbours
    assert sum(seen.values()) == EPOCHS * (sum(batches) + (factor - 1) * 8 * len(batches))


def peak(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_pass_holds_a_batch_and_not_the_pool(tmp_path: Path) -> None:
    count, ids, normalize = 4000, np.arange(4000), Normalize([0.5], [0.2], torch.device("cpu"))
    image_store.write(tmp_path / "images.arrow", ids, np.zeros((count, 1, 8, 8), np.uint8))
    store, net = image_store.opened(tmp_path / "images.arrow"), SmallCnn(width=4).initial(10, (1, 8, 8), 0)

    def seen(some: int) -> None:
        for _ in passes([net], store.take, ids[:some], normalize, 100, Wanted()):
            pass

    seen(200)
    assert peak(lambda: seen(count)) < 1.2 * peak(lambda: seen(400))


def test_scoring_waits_for_the_disk_once_a_file_and_not_once_a_batch(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, fsync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (waited.append(file), fsync(file))[1])
    workspace.change(**{"score.batch_size": 8})
    workspace.run("score", "c2")
    assert waiting(workspace) > 8 * 10
    assert len(waited) == 2  # outputs, scores


@pytest.mark.parametrize(("picker", "passes"), [("top", 1), ("softmax", 1), ("class_balanced", 1), ("power", 2)])
def test_scores_are_read_once_unless_the_lowest_is_needed_first(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, picker: str, passes: int
) -> None:
    workspace.change(**{"select.pick": {"name": picker}})
    read, stretches = list[Path](), tables.stretches
    monkeypatch.setattr(tables, "stretches", lambda path, schema: (read.append(path), stretches(path, schema))[1])
    workspace.run("select", "c2")
    assert len(read) == passes


def test_taking_the_top_reads_no_outputs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arrays, "take", lambda self, ids: pytest.fail(f"read {len(ids)} rows of {self.path}"))
    workspace.run("select", "c2")
