"""The warm process of this workspace: started when the first stage has to run, gone with the flow. The points of a study have one in common."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from codline.runtime import state_directory

# What stages and MLflow's follower import besides our own modules, soonest needed first. `stages` and `codline.tracking` tell numpy and MLflow their settings.
MODULES = "stages numpy pyarrow.parquet torch safetensors.torch sklearn.datasets codline.tracking mlflow torchmetrics.classification scipy.stats mlflow.pyfunc"
PATIENCE = 2.0  # seconds; it takes a tenth
_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


def up() -> None:
    """Start it, unless it runs, or CODLINE_WARM says otherwise. It serves while it imports, so nobody waits for more than its socket."""
    global _process
    with _lock:
        if _process is not None or sys.platform != "linux" or "CODLINE_WARM" in os.environ:
            return
        state_directory.root().mkdir(parents=True, exist_ok=True)
        door = state_directory.root() / "warm"
        door.unlink(missing_ok=True)
        path = os.path.relpath(door)  # a socket's path may have 107 characters
        _process = subprocess.Popen(
            [sys.executable, "-m", "codline.runtime.fork_server", path, *MODULES.split()], stdin=subprocess.DEVNULL
        )
        os.environ["CODLINE_WARM"] = path
        deadline = time.monotonic() + PATIENCE
        while not door.exists() and _process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)


def found_from(folder: Path) -> dict[str, str]:
    """The environment of whoever works in another folder and is to ask the same one."""
    path = os.environ.get("CODLINE_WARM")
    return {"CODLINE_WARM": path if Path(path).is_absolute() else os.path.relpath(path, folder)} if path else {}


def down() -> None:
    global _process
    with _lock:
        if _process is None:
            return
        del os.environ["CODLINE_WARM"]
        _process.kill()  # and with it what it forked
        _process.wait()
        _process = None
        with contextlib.suppress(OSError):
            (state_directory.root() / "warm").unlink()
