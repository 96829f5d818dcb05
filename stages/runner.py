"""In, Out, run(): a stage's signature becomes its command line."""

import argparse
import contextlib
import inspect
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from codline.core import params
from codline.core.errors import AGAIN, CodlineError, DataError, Stopped
from codline.runtime import process_lifetime, state_directory

In = Annotated[Path, "in"]
Out = Annotated[Path, "out"]
STAGES = ("prepare", "train", "score", "select", "annotate", "merge", "evaluate", "diagnose", "report")
TRACKED = {
    "train",
    "evaluate",
    "report",
}  # with these MLflow is told what the others left, too: a follower costs two seconds of a core
PATIENCE = 60  # seconds that a finished stage waits for MLflow


def run(stage: Callable[..., None]) -> None:
    """Read the command line and params.yaml, run the stage, and leave with an exit code that says what went wrong."""
    began = time.perf_counter()
    if seconds := float(os.environ.get("CODLINE_TIMEOUT", 0)):
        process_lifetime.limit(seconds)
    arguments = command_line(stage)
    name = label(stage, arguments)
    state_directory.note("error", name, None)
    try:
        with tracker(stage.__name__, arguments.get("cycle")):
            stage(**resolved(stage, arguments))
            state_directory.note("seconds", name, {"seconds": time.perf_counter() - began})
    except CodlineError as error:
        refuse(name, error)
    except KeyboardInterrupt:
        refuse(name, Stopped(AGAIN))
    except MemoryError:
        refuse(name, CodlineError("out of memory; lower the stage's batch_size"))
    except Exception as error:
        traceback.print_exc()
        refuse(name, CodlineError(f"unexpected {type(error).__name__}: {error}"))
    finally:
        state_directory.note("progress", name, None)


def command_line(stage: Callable[..., None]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog=f"python -m stages.{stage.__name__}", description=inspect.getmodule(stage).__doc__
    )
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    for name, kind in hints(stage).items():
        if kind in (In, Out):
            parser.add_argument(f"--{name.replace('_', '-')}", type=Path, required=True, help=kind.__metadata__[0])
        elif name == "cycle":
            parser.add_argument("--cycle", required=True)
    return vars(parser.parse_args())


def resolved(stage: Callable[..., None], arguments: dict[str, Any]) -> dict[str, Any]:
    """Check params.yaml and the inputs, and return what the stage's signature asks for."""
    raw = params.load(arguments.pop("params"))
    params.known(raw, [*params.SHARED, *STAGES])
    shared: dict[str, Callable[[], Any]] = {
        "params": lambda: params.section(raw, stage.__name__, hints(stage)["params"]),
        "seed": lambda: params.seed(raw),
        "compute": lambda: params.section(raw, "compute", params.Compute),
        "cycles": lambda: list(params.cycles(raw)),
        "budget": lambda: params.section(raw, "select", params.Budget).budget,
    }
    asked = {name: value() for name, value in shared.items() if name in hints(stage)}
    for name, kind in hints(stage).items():
        if kind is In and not arguments[name].exists():
            raise DataError(f"{arguments[name]}: not found; it is made by an earlier stage: run dvc repro")
    return arguments | asked


def hints(stage: Callable[..., None]) -> dict[str, Any]:
    found = get_type_hints(stage, include_extras=True)
    found.pop("return")
    return found


def label(stage: Callable[..., None], arguments: dict[str, Any]) -> str:
    return f"{stage.__name__}@{arguments['cycle']}" if "cycle" in arguments else stage.__name__


def refuse(name: str, error: CodlineError) -> None:
    state_directory.note("error", name, {"sentence": str(error), "exit_code": error.exit_code})
    if not os.environ.get("CODLINE_QUIET"):  # then whoever started us reads the note and says it
        sys.stderr.write(f"codline: {name}: {error}\n")
    sys.exit(error.exit_code)


@contextlib.contextmanager
def tracker(stage: str, cycle: str | None) -> Iterator[None]:
    """Run MLflow's bookkeeping beside the stage, in a process of its own: it costs the stage no import, and its failures no result."""
    if stage not in TRACKED or os.environ.get("CODLINE_TRACKING") == "off":
        yield
        return
    state_directory.note("progress", f"{stage}@{cycle}", None)  # what a killed stage left would be taken for ours
    command = [sys.executable, "-m", "codline.tracking", "follow", stage, *([cycle] if cycle else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as follower:
        word = b"failed\n"
        try:
            yield
            word = b"done\n"
        finally:
            dismiss(follower, word)


def dismiss(follower: subprocess.Popen[bytes], word: bytes) -> None:
    """Let the follower finish, for a while. Its pipe stays open meanwhile: if we are killed, it closes, and the follower ends with us."""
    try:
        if follower.stdin is not None:
            follower.stdin.write(word)
        follower.wait(PATIENCE)
    except BrokenPipeError:  # it has ended already, and said why
        pass
    except subprocess.TimeoutExpired:
        follower.kill()
        sys.stderr.write(f"codline: MLflow took longer than {PATIENCE} s; run `codline track` later\n")
