"""Passes whose workers fetch images from the DVC remote."""

import numpy as np
import pytest

from codline.core import params
from codline.core.errors import DataError
from codline.core.params import Compute
from codline.data.dataset_info import read_dataset_info
from codline.data.image_manifest import read_manifest
from codline.data.shard_cache import REMOTE, cache_directory, object_name
from codline.engine.setting import ENGINE
from codline.learning import model_file
from codline.learning.image_reader import ImageReader
from tests.workspace import Workspace


def test_pass_is_the_same_with_workers_that_fetch_images_and_refused_if_they_were_not_pushed(
    workspace: Workspace, fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = read_dataset_info(workspace.path("score", "dataset", "c1"))
    images = workspace.path("score", "images", "c1")
    path, classes = workspace.path("score", "model", "c1"), len(info.classes)
    network, _ = model_file.load_network(path, classes=classes, shape=info.shape)
    compute = params.parse_section(workspace.pipeline.params, "compute", Compute)

    def logits() -> np.ndarray:
        batches = ImageReader(images, info, compute, batch_size=32).stream_logits(network, np.arange(300))
        return np.concatenate([logits for _, logits in batches])

    expected = logits()
    (shard,) = read_manifest(images).shards
    pushed = workspace.root / "remote" / object_name(shard.md5)
    pushed.parent.mkdir(parents=True)
    (images / shard.name).rename(pushed)  # workers have the manifest alone
    for name, value in (fork_server_environment | {ENGINE: "local:2", REMOTE: f"{workspace.root}/remote"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{workspace.root}/cache")
    assert np.array_equal(logits(), expected)
    assert len(list(cache_directory().glob("*.arrow"))) == 1
    (cache_directory() / f"{shard.sha256}.arrow").unlink()
    pushed.unlink()
    with pytest.raises(DataError, match=r"00000.arrow: not in .*; run `dvc push .*` where the images were prepared$"):
        logits()
