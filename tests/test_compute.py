"""Device, threads and instructions are what params.yaml says, or the user hears why not."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from codline import compute
from codline.errors import UserError
from codline.params import Compute


def test_a_device_that_is_not_there_is_refused() -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(UserError, match=f"compute.device: found '{missing}', but this machine has only cpu"):
        compute.device(missing)


def test_auto_takes_a_device_that_is_there() -> None:
    assert torch.zeros(1, device=compute.device("auto")).sum() == 0


def test_threads_and_determinism_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        compute.configure(Compute(device="cpu", threads=2, deterministic=False))
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    finally:
        compute.configure(Compute(device="cpu"))
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_the_fingerprint_names_what_bits_depend_on_and_nothing_private() -> None:
    found = compute.fingerprint()
    assert {"cpu", "instructions", "machine", "system", "python", "torch", "accelerator"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert not {platform.node(), str(Path.home())} & set(found.values())


def test_memory_of_a_freed_tensor_is_used_again_instead_of_being_asked_for_anew() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another malloc than glibc's")
    words = """
import resource, torch
from codline.compute import configure
from codline.params import Compute
configure(Compute(device="cpu", threads=1))
network, images = torch.nn.Sequential(*[torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)]), torch.randn(1024, 4, 32, 32)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with torch.inference_mode():
    for _ in range(3):
        network(images)
    before = faults()
    for _ in range(4):
        network(images)
print(faults() - before)
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * 4096  # a layer's output has 4096 pages of 4 kB: sixteen of them otherwise
