"""Each process that runs a model takes a GPU of its own; here the GPUs are only names, but the locks are real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codline.runtime import gpu_lock
from tests.workspace import REPOSITORY

VARIABLES = {"3": ["3"], "2, 0": ["2", "0"], "GPU-1a": ["GPU-1a"], "": [], "-1": [], "1,-1,2": ["1"]}
ACQUIRE = """
import os, sys
from codline.runtime.gpu_lock import acquire_gpu
acquire_gpu()
print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
sys.stdin.read()
"""


def start(directory: Path, gpus: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": gpus, "TMPDIR": str(directory), "PYTHONPATH": str(REPOSITORY)
    }  # fmt: skip
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", ACQUIRE], env=environment, stdin=pipe, stdout=pipe, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_acquire_gpu_gives_two_processes_different_gpus_and_a_third_one_the_first_that_is_free(tmp_path: Path) -> None:
    with start(tmp_path, "0,1") as first, start(tmp_path, "0,1") as second:
        taken = read_line(first), read_line(second)
        assert sorted(taken) == ["0", "1"]
        with start(tmp_path, "0,1") as third:
            first.kill()  # the kernel releases the lock
            assert read_line(third) == taken[0]
            third.kill()
        second.kill()


def test_acquire_gpu_returns_at_once_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_lock, "DRIVER", tmp_path / "missing")
    gpu_lock.acquire_gpu()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_visible_gpus_are_those_of_the_driver_unless_the_environment_names_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_lock, "DRIVER", tmp_path)
    assert gpu_lock.visible_gpus() == ["0", "1"]
    for variable, gpus in VARIABLES.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        assert gpu_lock.visible_gpus() == gpus
