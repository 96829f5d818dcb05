"""When and with which GPU stages start CUDA, told by a driver that records it and has no GPU."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from codline.runtime.fork_server import SOCKET
from tests.project import running_fork_server
from tests.workspace import REPOSITORY, Workspace

SOURCE = Path(__file__).with_name("cuda_driver.c")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the driver is a Linux library")]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the driver, which processes that are started from now on use: a line "pid GPUs" for each start."""
    folder = tmp_path / "driver"
    folder.mkdir()
    try:
        command = ["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", SOURCE]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("the driver is written in C, and no compiler (cc) is installed")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("CUDA_DRIVER_LOG", str(folder / "log"))
    monkeypatch.setenv("TMPDIR", str(folder))  # of the GPU locks
    (folder / "log").touch()
    return folder / "log"


HOLD_GPU = "import sys; from codline.runtime.gpu_lock import acquire_gpus; acquire_gpus()"


def starts(driver: Path) -> list[tuple[str, str]]:
    """Process and visible GPUs of each start."""
    return [(pid, gpus) for pid, _, gpus in (line.partition(" ") for line in driver.read_text().splitlines())]


@contextmanager
def locked(gpu: str) -> Iterator[None]:
    """Another process that holds a GPU."""
    script = f"{HOLD_GPU}; print(flush=True); sys.stdin.read()"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def wait_for(path: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def run(workspace: Workspace, stage: str, **environment: str) -> None:
    ended = workspace.command(stage, "c2", **environment)
    assert ended.returncode == 0, ended.stderr


INITIALIZE = """
from codline.acquisition.adversarial import AdversarialNetworks, AdversarialSettings
from codline.models.small_cnn import SmallCnn
SmallCnn().initial_network(2, (1, 8, 8), seed=0)
settings = AdversarialSettings(steps=1, batch_size=2, latent=2, width=2, beta=1, adversary=1, learning_rate=1)
AdversarialNetworks(settings, (1, 8, 8), classes=2, ranks=0, seed=0)
"""


@pytest.mark.parametrize(
    ("script", "count"),
    [("import torch, torch._dynamo", 0), (INITIALIZE, 0), ("import torch; torch.cuda.is_available()", 1)],
    ids=["import", "initialize", "look for GPUs"],
)
def test_driver_is_started_when_torch_looks_for_gpus_and_not_before(driver: Path, script: str, count: int) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "5", "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert [gpus for _, gpus in starts(driver)] == ["5"] * count


@pytest.mark.parametrize(("stage", "computes_gradients"), [("train", True), ("score", False), ("diagnose", True)])
def test_stage_on_the_cpu_starts_cuda_for_gradients_alone_and_without_a_gpu(
    workspace: Workspace, driver: Path, stage: str, computes_gradients: bool
) -> None:
    """torch starts CUDA before its first backward pass, on the CPU too."""
    workspace.change(**{"compute.device": "cpu"})
    run(workspace, stage, CUDA_VISIBLE_DEVICES="0")
    assert [gpus for _, gpus in starts(driver)] == [""] * computes_gradients


@pytest.mark.parametrize("stage", ["train", "score"])
def test_stage_starts_cuda_with_the_gpu_alone_that_it_has_locked(
    workspace: Workspace, driver: Path, stage: str
) -> None:
    workspace.change(**{"compute.device": "auto"})
    with locked("4"), locked("7"):
        run(workspace, stage, CUDA_VISIBLE_DEVICES="4,7,2,0")
    assert {gpus for _, gpus in starts(driver)} == {"2"}


def test_training_in_two_processes_starts_cuda_with_a_gpu_for_each(workspace: Workspace, driver: Path) -> None:
    workspace.change(**{"compute.device": "auto", "train.processes": 2})
    with locked("4"), locked("7"):
        run(workspace, "train", CUDA_VISIBLE_DEVICES="4,7,2,0")
    (first, gpu), (second, other_gpu) = starts(driver)
    assert first != second
    assert {gpu, other_gpu} == {"2", "0"}


def test_forked_stages_start_cuda_with_a_gpu_each_and_the_fork_server_does_not(
    workspace: Workspace, driver: Path
) -> None:
    workspace.change(**{"compute.device": "auto"})
    with ExitStack() as stack:
        environment = stack.enter_context(running_fork_server(driver.parent / "socket"))
        wait_for(Path(environment[SOCKET]))
        run(workspace, "train", CUDA_VISIBLE_DEVICES="1,3", **environment)
        stack.enter_context(locked("1"))
        run(workspace, "train", CUDA_VISIBLE_DEVICES="1,3", **environment)
    (first, gpu), (second, other_gpu) = starts(driver)
    assert first != second
    assert (gpu, other_gpu) == ("1", "3")
