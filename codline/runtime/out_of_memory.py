"""Out of memory: recognized in the errors of torch, numpy and pyarrow, and in kills by the kernel."""

import errno
import os
import re
from pathlib import Path

from codline.core import params
from codline.core.errors import CodlineError, UserError, causes
from codline.core.units import format_bytes
from codline.runtime.pipeline import dotted_value

# The parameter that a stage's memory depends on most. That of the others depends on the dataset alone.
PARAMETERS = {
    "train": "train.batch_size",
    "score": "score.batch_size",
    "evaluate": "evaluate.batch_size",
    "diagnose": "diagnose.batch_size",
    "report": "report.gallery",
}
# In messages of RuntimeErrors: of torch's allocators for CPU, CUDA and MPS, of C++, cuBLAS, cuDNN and the system.
MESSAGES = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc", "ALLOC_FAILED",
            os.strerror(errno.ENOMEM))  # fmt: skip
SIZE = re.compile(r"(\d[\d.]*) (bytes|[KMGTP]iB)|of size (\d+)")
KERNEL_COUNTERS = Path("/proc/vmstat")


def memory_error(error: BaseException, stage: str, params_file: Path) -> CodlineError | None:
    """The sentence for users, if lack of memory is what caused this error, however it was wrapped."""
    cause = next((each for each in causes(error) if is_memory_error(each)), None)
    if cause is None:
        return None
    size = requested_size(str(cause))
    found = f"out of memory: {size} could not be allocated" if size else "out of memory"
    return CodlineError(f"{found}; {advice(stage, params_file)}")


def is_memory_error(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM  # a file that could not be mapped
    is_message = isinstance(error, RuntimeError) and any(each in str(error) for each in MESSAGES)
    return is_message or isinstance(error, MemoryError)


def requested_size(message: str) -> str:
    """For example `14.8 GB`, or an empty string if the message does not tell."""
    match = SIZE.search(message)
    if match is None:
        return ""
    number, unit, size = match.groups()
    power = " KMGTP".index(unit[0].upper()) if unit and unit != "bytes" else 0
    return format_bytes(float(size or number) * 1024**power)


def advice(stage: str, params_file: Path) -> str:
    """What a user can do about a stage that needs too much memory."""
    if stage not in PARAMETERS:
        return "free some memory, or use fewer or smaller images"
    name = PARAMETERS[stage]
    try:
        value = dotted_value(params.read_yaml(params_file), name)
    except UserError:  # not in params.yaml, which cannot be read or leaves it at its default
        return f"lower {name}, or free some memory"
    return f"lower {name} (now {value}), or free some memory"


def kernel_kills() -> int:
    """How many processes the kernel has killed, for lack of memory of the machine or of a container."""
    try:
        lines = KERNEL_COUNTERS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
