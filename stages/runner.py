"""Turns a stage function into a command: its signature becomes the command line (In, Out, run)."""

import argparse
import contextlib
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

from codline.core import campaign_setup, params
from codline.core.errors import CodlineError, DataError, Stopped, StorageError, disk_error
from codline.core.files import remove
from codline.engine.ray_workers import leave_cluster
from codline.runtime import log, process_lifetime, stage_snapshot, state_directory
from codline.runtime.gpu_lock import acquire_gpus, hide_gpus
from codline.runtime.out_of_memory import memory_error
from codline.runtime.recorded_outputs import refuse_damaged_inputs
from codline.runtime.stage_times import write_times

In = Annotated[Path, "in"]
Out = Annotated[Path, "out"]
Stage = Callable[..., Callable[[], None] | None]  # may return what is to be done once its result is accepted
STAGES = ("scan", "prepare", "train", "score", "select", "annotate", "merge", "evaluate", "diagnose", "report")
KEYS = ("cycle", "input")  # arguments that tell the runs of a stage apart


def run(stage: Stage) -> None:
    """Parse the command line and params.yaml, run the stage, and exit with the code of the error, if any.

    If its parameters, inputs or code have changed meanwhile, the stage is refused and its outputs are removed.
    """
    began = time.perf_counter()
    if seconds := float(os.environ.get("CODLINE_TIMEOUT", 0)):
        process_lifetime.end_after(seconds)
    arguments = parse_command_line(stage)
    name = label(stage, arguments)
    log.show_warnings(name)
    try:
        state_directory.delete_note("error", name)
        execute(stage, arguments, params.read_yaml(arguments["params"]))
        write_times(name, time.perf_counter() - began)
    except (Exception, KeyboardInterrupt) as error:
        fail(name, reported_error(error, stage, arguments))


def execute(
    stage: Stage, arguments: dict[str, Any], raw: dict[str, Any], known: stage_snapshot.KnownFiles | None = None
) -> None:
    """Run a stage with all checks. `raw` is the content of params.yaml."""
    name = label(stage, arguments)
    try:
        values, ins = check_arguments(stage, arguments, raw), paths(stage, arguments, In)
        stage_snapshot.begin(name, arguments["params"], raw, param_keys(stage), ins, known)
        refuse_damaged_inputs(ins)
        finish = stage(**values)
        accept_result(stage, arguments)
        if finish is not None:
            finish()
        state_directory.delete_passes(name)
    finally:
        stage_snapshot.end()
        leave_cluster()
        with contextlib.suppress(OSError):  # on a read-only or failing disk
            state_directory.delete_note("progress", name)


def reported_error(error: BaseException, stage: Stage, arguments: dict[str, Any]) -> CodlineError:
    """What a user is told about an error of a stage; the traceback of an unexpected one is printed."""
    if isinstance(error, KeyboardInterrupt):
        return Stopped()
    known = disk_error(error) or memory_error(error, stage.__name__, arguments["params"])
    if known is not None:
        return known
    if isinstance(error, CodlineError):
        return error
    traceback.print_exception(error)
    return CodlineError(f"unexpected {type(error).__name__}: {error}")


def parse_command_line(stage: Stage) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog=f"python -m stages {stage.__name__}", description=inspect.getmodule(stage).__doc__
    )
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    for name, kind in hints(stage).items():
        if kind in (In, Out):
            parser.add_argument(f"--{name.replace('_', '-')}", type=Path, required=True, help=kind.__metadata__[0])
        elif name in KEYS:
            parser.add_argument(f"--{name}", required=True)
    return vars(parser.parse_args())


def stage_arguments(stage: Stage, arguments: dict[str, Any]) -> dict[str, Any]:
    """Check params.yaml and that the inputs exist; return the values of the stage's parameters."""
    return check_arguments(stage, arguments, params.read_yaml(arguments["params"]))


def check_arguments(stage: Stage, arguments: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """The same for a params.yaml that has been read."""
    params.check_section_names(raw, [*params.SHARED_SECTIONS, *STAGES])
    shared: dict[str, Callable[[], Any]] = {
        "params": lambda: params.parse_section(raw, stage.__name__, hints(stage)["params"]),
        "seed": lambda: params.parse_seed(raw),
        "compute": lambda: params.parse_section(raw, "compute", params.Compute),
        "inputs": lambda: params.parse_inputs(raw),
        "cycles": lambda: list(params.parse_cycles(raw)),
        "setup": lambda: campaign_setup.parse_setup(raw),
        "budget": lambda: params.parse_section(raw, "select", params.SelectBudget).budget,
    }
    values = {name: value() for name, value in shared.items() if name in hints(stage)}
    for path in paths(stage, arguments, In):
        if not path.exists():
            raise DataError(f"{path}: not found; it is made by an earlier stage: run dvc repro")
    if "compute" in values:
        count = getattr(values.get("params"), "processes", 1)  # of train; others run networks in one process
        acquire_gpus(count) if values["compute"].device in ("auto", "cuda") else hide_gpus()
    return {name: value for name, value in arguments.items() if name != "params"} | values


def param_keys(stage: Stage) -> set[str]:
    """The keys of params.yaml that the stage reads."""
    shared = {"seed": "seed", "compute": "compute", "cycles": "cycles", "budget": "select.budget"}
    return {stage.__name__} | {key for name, key in shared.items() if name in hints(stage)}


def paths(stage: Stage, arguments: dict[str, Any], wanted: Any) -> list[Path]:
    """The stage's inputs (In) or outputs (Out)."""
    return [arguments[name] for name, kind in hints(stage).items() if kind is wanted]


def accept_result(stage: Stage, arguments: dict[str, Any]) -> None:
    """Refuse the stage, and remove its outputs, if what it depends on has changed while it ran."""
    try:
        stage_snapshot.refuse_changes()
    except CodlineError:
        for path in paths(stage, arguments, Out):
            remove(path)
        raise


def hints(stage: Stage) -> dict[str, Any]:
    found = get_type_hints(stage, include_extras=True)
    found.pop("return")
    return found


def label(stage: Stage, arguments: dict[str, Any]) -> str:
    return "@".join([stage.__name__, *(arguments[name] for name in KEYS if name in arguments)])


def fail(name: str, error: CodlineError) -> NoReturn:
    with contextlib.suppress(OSError, StorageError):  # then the caller has the exit code alone
        state_directory.write_note("error", name, {"sentence": str(error), "exit_code": error.exit_code})
    if not os.environ.get("CODLINE_QUIET"):  # the caller reads the note and reports it
        sys.stderr.write(f"codline: {name}: {error}\n")
    sys.exit(error.exit_code)
