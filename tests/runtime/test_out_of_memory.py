"""Out of memory: what was too large and which parameter to lower, whichever library or the kernel ran out of it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from codline.core.errors import CodlineError, DataError, InfrastructureError
from codline.core.params import read_yaml
from codline.data.tables import translate_read_errors
from codline.orchestration.dvc_stages import stage_failure
from codline.runtime import out_of_memory
from codline.runtime.out_of_memory import PARAMETERS, memory_error
from tests.project import Project
from tests.workspace import REPOSITORY, Workspace

TOO_MUCH = 2**48
PARAMS = REPOSITORY / "params.yaml"


def read_too_large_table() -> None:
    with translate_read_errors(Path("pool.parquet")):
        pa.allocate_buffer(TOO_MUCH)


def run_out_of_cuda_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB")


def fail_to_map_a_file() -> None:
    """With the words of safetensors."""
    raise RuntimeError("unable to mmap 33242440 bytes from file <model.safetensors>: Cannot allocate memory (12)")


@pytest.mark.parametrize(
    ("allocate", "size"),
    [
        (lambda: torch.empty(TOO_MUCH, dtype=torch.uint8), "281.5 TB"),
        (lambda: np.empty(TOO_MUCH, np.uint8), "281.5 TB"),
        (lambda: pa.allocate_buffer(TOO_MUCH), "281.5 TB"),
        (read_too_large_table, "281.5 TB"),
        (lambda: bytearray(TOO_MUCH), None),
        (run_out_of_cuda_memory, "21.5 GB"),
        (fail_to_map_a_file, "33.2 MB"),
    ],
    ids=["torch", "numpy", "pyarrow", "wrapped", "python", "cuda", "file"],
)
def test_memory_error_of_each_library_names_the_size_and_the_parameter(
    allocate: Callable[[], object], size: str | None
) -> None:
    with pytest.raises((MemoryError, RuntimeError, DataError)) as caught:
        allocate()
    error = memory_error(caught.value, "train", PARAMS)
    found = f"out of memory: {size} could not be allocated" if size else "out of memory"
    assert str(error) == f"{found}; lower train.batch_size (now 32), or free some memory"


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    with pytest.raises(DataError) as caught, translate_read_errors(Path("pool.parquet")):
        raise pa.ArrowInvalid("Parquet magic bytes not found in footer")
    assert memory_error(caught.value, "train", PARAMS) is None
    assert memory_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "train", PARAMS) is None
    assert memory_error(FileNotFoundError(2, "No such file"), "train", PARAMS) is None


@pytest.mark.parametrize("stage", PARAMETERS)
def test_parameter_to_lower_is_one_of_the_stage(stage: str) -> None:
    section, _, name = PARAMETERS[stage].partition(".")
    assert section == stage
    assert name in import_module(f"stages.{stage}").Params.model_fields


def test_stage_without_such_a_parameter_gets_other_advice() -> None:
    assert str(memory_error(MemoryError(), "merge", PARAMS)).startswith("out of memory; free some memory, or use fewer")


def test_advice_does_not_need_params_yaml(tmp_path: Path) -> None:
    assert out_of_memory.advice("score", tmp_path / "params.yaml") == "lower score.batch_size, or free some memory"
    assert "diagnose.batch_size" not in read_yaml(PARAMS)["diagnose"]
    assert out_of_memory.advice("diagnose", PARAMS) == "lower diagnose.batch_size, or free some memory"


# Limits its own address space to what it has and 120 MB more, once libraries have their threads; then runs the stage.
LIMITED = """
import re, resource, runpy, torch, pyarrow.parquet
pyarrow.parquet.read_table("data/pool.parquet")
torch.set_num_threads(1)
used = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 120 * 2**20,) * 2)
runpy.run_module("stages.score", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
def test_stage_that_runs_out_of_memory_says_what_to_lower_and_exits_with_1(workspace: Workspace) -> None:
    workspace.change(**{"prepare.model": {"name": "small_cnn", "width": 256}, "score.batch_size": 4096})
    workspace.run("prepare")
    for name in ("model", "auxiliary"):
        shutil.copy(workspace.path("prepare", name), workspace.path("score", name, "c1"))
    arguments = workspace.pipeline.arguments("score", "c1").items()
    words = [word for name, value in arguments for word in (f"--{name.replace('_', '-')}", value)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", LIMITED, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == CodlineError.exit_code, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"codline: score@c1: out of memory(: [\d.]+ MB could not be allocated)?; "
        r"lower score\.batch_size \(now 4096\), or free some memory",
        line,
    )


def test_kernel_kills_are_read_from_the_counters_of_the_kernel() -> None:
    expected = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    assert out_of_memory.kernel_kills() == (int(expected[1]) if expected else 0)


class CommandError(Exception):
    """The text is as DVC's StageCmdFailedError has it."""


def test_stage_that_the_kernel_killed_for_lack_of_memory_is_not_retried(workspace: Workspace) -> None:
    workspace.change(**{"score.batch_size": 4096})
    for code in (-9, 137):
        error = CommandError(f"failed to run: python -m stages score, exited with {code}")
        killed_before = out_of_memory.kernel_kills()
        out_of_memory_error = stage_failure("score@c1", error, killed_before - 1)
        assert not isinstance(out_of_memory_error, InfrastructureError)
        assert out_of_memory_error.exit_code == 1
        assert str(out_of_memory_error) == (
            "score@c1: out of memory, so the kernel killed it; lower score.batch_size (now 4096), or free some memory"
        )
        assert isinstance(stage_failure("score@c1", error, killed_before), InfrastructureError)


TRAIN = """
from codline.core.errors import exit_on_error
from codline.orchestration.workspace import open_workspace
with exit_on_error(), open_workspace() as workspace:
    workspace.reproduce("prepare")
    workspace.reproduce("train@c1")
"""


def test_stage_that_is_killed_is_reported_with_what_to_lower(untouched: Project) -> None:
    campaign = untouched.start(sys.executable, "-c", TRAIN)
    while campaign.poll() is None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if (process / "cwd").readlink() == untouched.root:
                    command = (process / "cmdline").read_bytes().split(b"\0")
                    if command[1:4] == [b"-m", b"stages", b"train"]:
                        os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.02)
    assert campaign.returncode == InfrastructureError.exit_code, untouched.output
    assert untouched.output.splitlines()[-1] == (
        "codline: train@c1: the stage was killed; if memory was short, lower train.batch_size (now 32), "
        "or free some memory"
    )
