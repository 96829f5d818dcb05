"""Workers on machines without the images: the shards that they need come from a DVC remote, once, verified."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from dvc.repo import Repo

from codline.core.errors import DataError, InfrastructureError, UserError
from codline.core.files import file_sha256
from codline.data import image_shards, image_store
from codline.data.image_location import ImageLocation, locate_images
from codline.data.image_manifest import ImageManifest, read_manifest
from codline.data.shard_cache import ENDPOINTS, REMOTE, cache_directory, object_name
from tests.bits import flip_bit
from tests.data.s3_server import CREDENTIALS, ObjectServer, running_object_server
from tests.workspace import REPOSITORY

SHAPE, ROWS = (1, 8, 8), 20
IDS = np.arange(3 * ROWS) * 5
PIXELS = np.random.default_rng(0).integers(0, 256, (len(IDS), *SHAPE), np.uint8)
DIRECTORY, S3_REMOTE = Path("data/images"), "s3://pool/dvc"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a campaign with images in three shards."""
    root = tmp_path_factory.mktemp("campaign")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_store, "BATCH_BYTES", ROWS * 64)
        patch.setattr(image_shards, "SHARD_BYTES", ROWS * 64)
        image_store.write_images(root / DIRECTORY, IDS, PIXELS)
    return root


@pytest.fixture
def manifest(campaign: Path) -> ImageManifest:
    manifest = read_manifest(campaign / DIRECTORY)
    assert [(shard.rows, shard.first_id) for shard in manifest.shards] == [(ROWS, 0), (ROWS, 100), (ROWS, 200)]
    return manifest


@pytest.fixture
def remote(campaign: Path, manifest: ImageManifest, tmp_path: Path) -> Path:
    """A directory as `dvc push` writes it."""
    for shard in manifest.shards:
        path = tmp_path / "remote" / object_name(shard.md5)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(campaign / DIRECTORY / shard.name, path)
    return tmp_path / "remote"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine: the current directory has no files, and the cache is empty."""
    for name in (REMOTE, *ENDPOINTS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "machine").mkdir()
    monkeypatch.chdir(tmp_path / "machine")
    return tmp_path / "machine"


def start_worker(images: ImageLocation, ids: np.ndarray) -> "subprocess.Popen[bytes]":
    """A process that has no more than the pickled location and ids; it writes the pixels."""
    code = "images, ids = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write(images.open().take(ids).tobytes())"
    worker = subprocess.Popen(
        [sys.executable, "-c", f"import pickle, sys; {code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ) | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert worker.stdin is not None
    with worker.stdin as stdin:
        stdin.write(pickle.dumps((images, ids)))
    worker.stdin = None
    return worker


def received_pixels(worker: "subprocess.Popen[bytes]") -> np.ndarray:
    pixels, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    return np.frombuffer(pixels, np.uint8).reshape(-1, *SHAPE)


def test_worker_fetches_the_shards_that_hold_its_images_and_no_others(manifest: ImageManifest, remote: Path) -> None:
    images = ImageLocation(DIRECTORY, manifest, str(remote))
    rows = np.array([59, 41, 3])
    assert np.array_equal(received_pixels(start_worker(images, IDS[rows])), PIXELS[rows])
    fetched = {path.stem for path in cache_directory().glob("*.arrow")}
    assert fetched == {manifest.shards[0].sha256, manifest.shards[2].sha256}
    assert cache_directory().stat().st_mode & 0o777 == 0o700
    shutil.rmtree(remote)
    assert np.array_equal(received_pixels(start_worker(images, IDS[rows])), PIXELS[rows])


def test_worker_reads_the_files_of_its_machine_if_they_are_those_of_the_campaign(
    campaign: Path, manifest: ImageManifest, machine: Path, remote: Path
) -> None:
    shutil.copytree(campaign / DIRECTORY, machine / DIRECTORY)
    images = ImageLocation(DIRECTORY, manifest, str(remote))
    assert np.array_equal(images.open().take(IDS), PIXELS)
    assert not list(cache_directory().iterdir())
    (machine / DIRECTORY / "00001.arrow").unlink()
    assert np.array_equal(images.open().take(IDS), PIXELS)
    assert len(list(cache_directory().glob("*.arrow"))) == 1
    image_store.write_images(machine / DIRECTORY, IDS, 255 - PIXELS)  # another campaign
    assert np.array_equal(images.open().take(IDS), PIXELS)


def test_location_without_a_remote_refuses_images_that_are_not_here(manifest: ImageManifest, machine: Path) -> None:
    sentence = "data/images: the images are not on this machine; share the directory, or run `dvc push data/images`"
    with pytest.raises(DataError, match=f"^{sentence} where they were prepared and set {REMOTE} to the DVC remote$"):
        ImageLocation(DIRECTORY, manifest, "").open()
    image_store.write_images(machine / DIRECTORY, IDS, 255 - PIXELS)
    with pytest.raises(DataError, match=f"^{sentence}"):
        ImageLocation(DIRECTORY, manifest, "").open()


def test_object_that_was_not_pushed_is_refused_with_what_to_run(manifest: ImageManifest, remote: Path) -> None:
    name = object_name(manifest.shards[1].md5)
    (remote / name).unlink()
    store = ImageLocation(DIRECTORY, manifest, str(remote)).open()
    assert np.array_equal(store.take(IDS[:ROWS]), PIXELS[:ROWS])
    with pytest.raises(DataError) as refused:
        store.take(IDS)
    found = f"data/images/00001.arrow: not in {remote}, expected the object {name} there"
    assert str(refused.value) == f"{found}; run `dvc push data/images` where the images were prepared"


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_damaged_object_is_refused_and_leaves_nothing(manifest: ImageManifest, remote: Path, damage: str) -> None:
    shard = manifest.shards[1]
    path = remote / object_name(shard.md5)
    flip_bit(path, 4000) if damage == "flipped" else os.truncate(path, 100)
    with pytest.raises(DataError) as refused:
        ImageLocation(DIRECTORY, manifest, str(remote)).open().take(IDS[ROWS : ROWS + 1])
    found = f"data/images/00001.arrow: its object in {remote}, {object_name(shard.md5)}, is damaged: found SHA-256"
    cure = "remove it there and run `dvc push data/images`"
    assert str(refused.value) == f"{found} {file_sha256(path)}, expected {shard.sha256}; {cure}"
    assert [each.suffix for each in cache_directory().iterdir()] == [".lock"]


@pytest.fixture
def s3(campaign: Path, manifest: ImageManifest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server with the images in the remote s3://pool/dvc, which the environment names."""
    with running_object_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        files = server.file_system()
        files.create_dir("pool")
        for shard in manifest.shards:
            with files.open_output_stream(f"pool/dvc/{object_name(shard.md5)}") as stream:
                stream.write((campaign / DIRECTORY / shard.name).read_bytes())
        server.reads.clear()
        yield server


def test_processes_of_a_machine_fetch_a_shard_from_s3_once(manifest: ImageManifest, s3: ObjectServer) -> None:
    images = ImageLocation(DIRECTORY, manifest, S3_REMOTE)
    s3.may_answer.clear()
    workers = [start_worker(images, IDS[:1]) for _ in range(3)]
    wait_until(lambda: bool(s3.reads))
    s3.may_answer.set()
    for worker in workers:
        assert np.array_equal(received_pixels(worker), PIXELS[:1])
    assert s3.reads == {f"/pool/dvc/{object_name(manifest.shards[0].md5)}": 1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries of DVC
def test_worker_reads_what_dvc_has_pushed_to_s3(
    campaign: Path, manifest: ImageManifest, s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    copy = f"mkdir data && cp -r {campaign / DIRECTORY} data"
    Path("dvc.yaml").write_text(json.dumps({"stages": {"prepare": {"cmd": copy, "outs": [str(DIRECTORY)]}}}))
    with Repo.init(no_scm=True) as repo:
        with repo.config.edit() as config:
            config["core"]["remote"] = "storage"
            config["remote"]["storage"] = {"url": "s3://pool/pushed", "endpointurl": f"http://{s3.address}"}
        repo.reproduce()
        repo.push(targets=[str(DIRECTORY)])
    monkeypatch.chdir(tmp_path / "machine")
    assert np.array_equal(ImageLocation(DIRECTORY, manifest, "s3://pool/pushed").open().take(IDS), PIXELS)


def test_killed_fetch_leaves_nothing_that_a_later_one_uses(manifest: ImageManifest, s3: ObjectServer) -> None:
    images = ImageLocation(DIRECTORY, manifest, S3_REMOTE)
    s3.may_answer.clear()
    worker = start_worker(images, IDS[:1])
    wait_until(lambda: bool(s3.reads))
    worker.kill()
    worker.communicate()
    s3.may_answer.set()
    (partial,) = cache_directory().glob(".*.part")
    partial.write_bytes(b"the beginning")
    assert not list(cache_directory().glob("*.arrow"))
    assert np.array_equal(images.open().take(IDS[:1]), PIXELS[:1])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_s3_remote_without_the_object_or_the_bucket_is_named(manifest: ImageManifest, s3: ObjectServer) -> None:
    for remote in ("s3://pool/other", "s3://nothing/dvc"):
        with pytest.raises(DataError, match=f"^data/images/00000.arrow: not in {remote}, expected the object"):
            ImageLocation(DIRECTORY, manifest, remote).open().take(IDS[:1])


@pytest.mark.parametrize("remote", ["gs://bucket/path", "s3://", "remote/of/dvc"])
def test_locate_images_refuses_what_is_no_remote(campaign: Path, monkeypatch: pytest.MonkeyPatch, remote: str) -> None:
    monkeypatch.setenv(REMOTE, remote)
    with pytest.raises(UserError) as refused:
        locate_images(campaign / DIRECTORY)
    expected = "expected s3://BUCKET/PATH or an absolute path"
    assert str(refused.value) == f"{REMOTE}: found {remote!r}, {expected}"


def test_s3_server_that_does_not_answer_is_named(manifest: ImageManifest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    sentence = r"^data/images/00000.arrow: cannot be read from s3://pool/dvc \(.*Could not connect to server\)$"
    with pytest.raises(InfrastructureError, match=sentence):
        ImageLocation(DIRECTORY, manifest, S3_REMOTE).open().take(IDS[:1])
