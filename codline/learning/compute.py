"""Which device, how many threads, which vector instructions and numbers: everything besides data and code that moves bits."""

import contextlib
import ctypes
import os
import platform
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from codline.core.errors import UserError
from codline.core.params import Compute

# torch's own kernels, oneDNN and MKL each choose their code by the CPU they find. Told the same, they choose the same.
# MKL heeds AVX2 on Intel's CPUs alone; COMPATIBLE holds on all, and costs little: MKL multiplies the last layer here, oneDNN does the rest.
# numpy chooses when it is imported, so it is told in stages/__init__.py.
PINS = {
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"},
    "baseline": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
UNITS = (
    "avx512_bf16",
    "amx_bf16",
)  # what multiplies bfloat16 in a CPU: there it takes half the time of float32, elsewhere five to seven times as long
CHOSEN = {"bfloat16": False}  # by configure, as torch's own settings are


def configure(compute: Compute) -> torch.device:
    """Call before the first tensor operation: the libraries read their settings once."""
    if compute.instructions == "avx2" and lacks_avx2():
        raise UserError(
            "params.yaml: compute.instructions: found 'avx2', but this CPU has no AVX2; expected 'baseline' or 'native'"
        )
    os.environ.update(PINS[compute.instructions])
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may not repeat itself
    torch.set_num_threads(compute.threads)
    # The same switch as use_deterministic_algorithms, which would import torch's compiler as well: a second and a half, for every stage.
    torch.set_deterministic_debug_mode("error" if compute.deterministic else "default")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a tenth of a step, for tensors that nothing reads before they are written
    torch.backends.cudnn.benchmark = not compute.deterministic
    # GPUs that can would multiply with ten bits of the mantissa: quick, and other bits than those of a GPU that cannot.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not compute.deterministic
    keep_freed_memory()
    found = device(compute.device)
    CHOSEN["bfloat16"] = chosen(compute, found)
    return found


def chosen(compute: Compute, device: torch.device) -> bool:
    """Are networks to multiply in bfloat16?"""
    able = has_units(device, compute.instructions)
    if compute.precision == "bfloat16" and not able:
        why = f" with compute.instructions {compute.instructions!r}" if device.type == "cpu" else ""
        raise UserError(
            f"params.yaml: compute.precision: found 'bfloat16', but this {device.type} has no units for it{why}; expected 'float32' or 'auto'"
        )
    return able and compute.precision != "float32"


def has_units(device: torch.device, instructions: str) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return instructions == "native" and any(torch.cpu.get_capabilities().get(name) for name in UNITS)
    return False


def multiplying(device: torch.device) -> AbstractContextManager[Any]:
    """Around what a network does: its products and convolutions are then in the numbers that were chosen, and weights stay in float32."""
    return torch.autocast(device.type, torch.bfloat16) if CHOSEN["bfloat16"] else contextlib.nullcontext()


def keep_freed_memory() -> None:
    """glibc hands the memory of a large tensor back as soon as it is freed, and clears every page of the next one: a third of the time of a small network.

    A malloc without these settings stays as it is.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, value in ((M_TRIM_THRESHOLD, 1 << 30), (M_MMAP_MAX, 0)):
            library.mallopt(option, value)


def device(name: str) -> torch.device:
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if present[kind]))
    if not present[name]:
        raise UserError(
            f"params.yaml: compute.device: found {name!r}, but this machine has only {', '.join(k for k, v in present.items() if v)}"
        )
    return torch.device(name)


def lacks_avx2() -> bool:
    """Only x86 CPUs can lack it: on others the pins say nothing."""
    return platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_avx2_supported()


def fingerprint() -> dict[str, Any]:
    """What bits may depend on: recorded with the demo's results, and shown by `codline doctor`."""
    build = torch.__config__.show()
    return {
        "cpu": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn": found(r"MKL-DNN v(\S+)", build),
        "mkl": found(r"Math Kernel Library Version ([\d.]+)", build),
        "libc": " ".join(platform.libc_ver()).strip() or "none",  # numpy takes exp and log from it
        "machine": platform.machine(),
        "system": platform.system(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else "none"


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    lines = [line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line]
    fields = {key.strip(): value.strip() for key, value in lines}
    return (
        f"{fields.get('vendor_id', '')} family {fields.get('cpu family', '')} model {fields.get('model', '')}".strip()
    )
