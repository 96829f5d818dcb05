"""Each process that runs a model takes a GPU of its own; here the GPUs are only names, but the locks are real."""

import os
import subprocess
import sys
import time
from pathlib import Path
from select import select

import pytest

from codline.core.errors import UserError
from codline.runtime import gpu_lock
from tests.workspace import REPOSITORY

VARIABLES = {"3": ["3"], "2, 0": ["2", "0"], "GPU-1a": ["GPU-1a"], "": [], "-1": [], "1,-1,2": ["1"]}
ACQUIRE = """
import os, sys
from codline.runtime.gpu_lock import acquire_gpus, held_gpus
acquire_gpus(int(sys.argv[1]))
print(os.environ.get("CUDA_VISIBLE_DEVICES"), *held_gpus()[1:], flush=True)
sys.stdin.read()
"""


def start(directory: Path, gpus: str, count: int = 1) -> subprocess.Popen[str]:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": gpus, "TMPDIR": str(directory), "PYTHONPATH": str(REPOSITORY)
    }  # fmt: skip
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", ACQUIRE, str(count)], env=environment, stdin=pipe, stdout=pipe, text=True
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_acquire_gpus_gives_two_processes_different_gpus_and_a_third_one_the_first_that_is_free(tmp_path: Path) -> None:
    with start(tmp_path, "0,1") as first, start(tmp_path, "0,1") as second:
        taken = read_line(first), read_line(second)
        assert sorted(taken) == ["0", "1"]
        with start(tmp_path, "0,1") as third:
            first.kill()  # the kernel releases the lock
            assert read_line(third) == taken[0]
            third.kill()
        second.kill()


def test_acquire_gpus_waits_for_all_that_it_needs_and_shows_the_first_alone(tmp_path: Path) -> None:
    with start(tmp_path, "3") as other:
        assert read_line(other) == "3"
        with start(tmp_path, "0,3,2", 3) as first, start(tmp_path, "2,3,0", 3) as second:
            time.sleep(1)
            other.kill()
            one_of_them = next(each for each in select([first.stdout, second.stdout], [], [])[0])
            assert sorted(one_of_them.readline().split()) == ["0", "2", "3"]
            winner, loser = (first, second) if one_of_them is first.stdout else (second, first)
            winner.kill()
            assert len(read_line(loser).split()) == 3
            loser.kill()


def test_acquire_gpus_refuses_more_than_there_are_and_more_than_a_process_has_already(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_lock, "_held", {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(
        UserError, match=r"train\.processes: found 3, but this machine shows 2 GPUs; expected at most 2"
    ):
        gpu_lock.acquire_gpus(3)
    with (tmp_path / "0.lock").open("w") as file:
        monkeypatch.setattr(gpu_lock, "_held", {"0": file})
        gpu_lock.acquire_gpus(1)
        with pytest.raises(UserError, match=r"found 2 in a study on GPUs, whose workers have one each; expected 1"):
            gpu_lock.acquire_gpus(2)


def test_acquire_gpus_returns_at_once_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_lock, "DRIVER", tmp_path / "missing")
    gpu_lock.acquire_gpus()
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
