"""What a Ray worker process runs: an object whose methods the stage calls. Imports nothing that a node may lack."""

import os
import platform
import signal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from codline.engine.job_answers import JobRunner

# Packages whose version may decide bytes, or that a worker cannot do without.
PACKAGES = ("torch", "torchvision", "numpy", "pyarrow", "pillow", "pydantic", "safetensors")


class PassActor:
    """Answers items on a node of a Ray cluster, of one pass after the other."""

    def __init__(self, directory: str) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the stage, with which its workers end
        if Path(directory).is_dir():  # on the stage's machine, or where nodes share a file system
            os.chdir(directory)
        self.number, self.runner = 0, JobRunner(b"", b"")

    def environment(self) -> tuple[str, dict[str, str | None]]:
        """The node's name, and the versions of its packages."""
        return platform.node(), package_versions()

    def answer(self, number: int, messages: list[Any], item: bytes) -> bytes:
        """`messages` are references to setup and job of the pass with this number."""
        if number != self.number:
            import ray

            self.number, self.runner = number, JobRunner(*ray.get(messages))
        return self.runner.answer(item)


def package_versions() -> dict[str, str | None]:
    """{package: its version, or None if it is not installed}."""
    return {name: package_version(name) for name in PACKAGES}


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
