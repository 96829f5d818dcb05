"""Turns a stage function into a command: its signature becomes the command line (In, Out, run)."""

import argparse
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from codline.core import params
from codline.core.errors import CodlineError, DataError, Stopped
from codline.runtime import process_lifetime, state_directory
from codline.runtime.gpu_lock import acquire_gpu

In = Annotated[Path, "in"]
Out = Annotated[Path, "out"]
STAGES = ("prepare", "train", "score", "select", "annotate", "merge", "evaluate", "diagnose", "report")


def run(stage: Callable[..., None]) -> None:
    """Parse the command line and params.yaml, run the stage, and exit with the code of the error, if any."""
    began = time.perf_counter()
    if seconds := float(os.environ.get("CODLINE_TIMEOUT", 0)):
        process_lifetime.end_after(seconds)
    arguments = parse_command_line(stage)
    name = label(stage, arguments)
    state_directory.delete_note("error", name)
    try:
        stage(**stage_arguments(stage, arguments))
        state_directory.write_note("seconds", name, {"seconds": time.perf_counter() - began})
    except CodlineError as error:
        fail(name, error)
    except KeyboardInterrupt:
        fail(name, Stopped())
    except MemoryError:
        fail(name, CodlineError("out of memory; lower the stage's batch_size"))
    except Exception as error:
        traceback.print_exc()
        fail(name, CodlineError(f"unexpected {type(error).__name__}: {error}"))
    finally:
        state_directory.delete_note("progress", name)


def parse_command_line(stage: Callable[..., None]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog=f"python -m stages {stage.__name__}", description=inspect.getmodule(stage).__doc__
    )
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    for name, kind in hints(stage).items():
        if kind in (In, Out):
            parser.add_argument(f"--{name.replace('_', '-')}", type=Path, required=True, help=kind.__metadata__[0])
        elif name == "cycle":
            parser.add_argument("--cycle", required=True)
    return vars(parser.parse_args())


def stage_arguments(stage: Callable[..., None], arguments: dict[str, Any]) -> dict[str, Any]:
    """Check params.yaml and that the inputs exist; return the values of the stage's parameters."""
    raw = params.read_yaml(arguments.pop("params"))
    params.check_section_names(raw, [*params.SHARED_SECTIONS, *STAGES])
    shared: dict[str, Callable[[], Any]] = {
        "params": lambda: params.parse_section(raw, stage.__name__, hints(stage)["params"]),
        "seed": lambda: params.parse_seed(raw),
        "compute": lambda: params.parse_section(raw, "compute", params.Compute),
        "cycles": lambda: list(params.parse_cycles(raw)),
        "budget": lambda: params.parse_section(raw, "select", params.SelectBudget).budget,
    }
    values = {name: value() for name, value in shared.items() if name in hints(stage)}
    for name, kind in hints(stage).items():
        if kind is In and not arguments[name].exists():
            raise DataError(f"{arguments[name]}: not found; it is made by an earlier stage: run dvc repro")
    if "compute" in values and values["compute"].device in ("auto", "cuda"):
        acquire_gpu()
    return arguments | values


def hints(stage: Callable[..., None]) -> dict[str, Any]:
    found = get_type_hints(stage, include_extras=True)
    found.pop("return")
    return found


def label(stage: Callable[..., None], arguments: dict[str, Any]) -> str:
    return f"{stage.__name__}@{arguments['cycle']}" if "cycle" in arguments else stage.__name__


def fail(name: str, error: CodlineError) -> None:
    state_directory.write_note("error", name, {"sentence": str(error), "exit_code": error.exit_code})
    if not os.environ.get("CODLINE_QUIET"):  # the caller reads the note and reports it
        sys.stderr.write(f"codline: {name}: {error}\n")
    sys.exit(error.exit_code)
