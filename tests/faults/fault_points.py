"""Runs commands in which the Nth call that changes a file is a kill or an error; see shim.c."""

import itertools
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from codline.runtime import fork_server
from tests.workspace import REPOSITORY

SOURCE = Path(__file__).with_name("shim.c")
COUNTER = struct.Struct("l256s")  # struct counter in shim.c
PRELOADED = ["dvc.cli", "dvc.repo", "dvc.commands.repro", "dvc.stage.cache", *fork_server.PRELOADED]


def compile_shim(folder: Path) -> Path:
    """Skips the test where there is no compiler, or no LD_PRELOAD."""
    if sys.platform != "linux":
        pytest.skip("faults are injected by LD_PRELOAD, which only Linux has")
    library = folder / "shim.so"
    try:
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("faults are injected by a shim in C, and no compiler (cc) is installed")
    return library


class Ended(NamedTuple):
    code: int  # negative: the signal that killed it
    output: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass(frozen=True)
class Fault:
    """What happens at the call number `at` that changes a file below `directory`: an error, or a kill."""

    directory: Path
    at: int = 0  # 0: calls are only counted
    error: int = 0
    lasts: bool = False  # whether all later calls fail too


@dataclass
class FaultPoints:
    """The shim, and a fork server that has it loaded, in whose children most faults happen: that saves the imports."""

    library: Path
    folder: Path
    calls: int = 0  # in the last command
    failed: str = ""  # the call that failed in it
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @contextmanager
    def running_server(self) -> Iterator[None]:
        command = [sys.executable, "-m", "codline.runtime.fork_server", self.socket, str(os.getpid()), *PRELOADED]
        settings = os.environ | {"PYTHONPATH": str(REPOSITORY), "LD_PRELOAD": str(self.library)}
        with subprocess.Popen(command, cwd=self.folder, env=settings) as process:
            try:
                while not self.socket.exists():
                    time.sleep(0.01)
                yield
            finally:
                process.kill()

    @contextmanager
    def environment(self, fault: Fault) -> Iterator[dict[str, str]]:
        """For processes that count together; afterwards, `calls` and `failed` tell what has happened in them."""
        counter = self.folder / f"counter{next(self.numbers)}"
        counter.write_bytes(bytes(COUNTER.size))
        yield {
            "FAULT_DIRECTORY": f"{fault.directory}/",
            "FAULT_COUNTER": str(counter),
            "FAULT_AT": str(fault.at),
            "FAULT_ERROR": str(fault.error),
            "FAULT_LASTS": str(int(fault.lasts)),
        }
        self.calls, failed = COUNTER.unpack(counter.read_bytes())
        self.failed = failed.rstrip(b"\0").decode()
        counter.unlink()

    def run(self, fault: Fault, module: str, *words: str, **environment: str) -> Ended:
        """Run a module in a child of the server, in the fault's directory. Processes that it starts have no faults."""
        output = self.folder / "output"
        with self.environment(fault) as faults, output.open("w") as file:
            streams = [file.fileno()] * 3
            settings = os.environ | faults | environment
            code = fork_server.run_in_child(self.socket, module, [*words], str(fault.directory), settings, streams)
        assert code is not None, "the fork server has ended"
        return Ended(code, output.read_text(errors="replace"))
