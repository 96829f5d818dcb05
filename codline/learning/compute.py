"""Device, threads, vector instructions and precision: what affects bits, apart from data and code."""

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

# torch's own kernels, oneDNN and MKL dispatch by CPU. These variables make them choose the same code on every CPU.
# MKL obeys AVX2 on Intel's CPUs alone, COMPATIBLE on all; it costs little, because MKL computes only the last layer.
# numpy dispatches when it is imported, so its variable is set in stages/__init__.py.
INSTRUCTION_VARIABLES = {
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"},
    "baseline": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
# CPU extensions that multiply bfloat16, in half the time of float32. Without them it takes five to seven times as long.
BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16")
ENABLED = {"bfloat16": False}  # process-wide, set by configure() like torch's own settings


def configure(compute: Compute) -> torch.device:
    """Configure torch and return the device. Call before the first tensor operation: some settings are read once."""
    if compute.instructions == "avx2" and lacks_avx2():
        raise UserError(
            "params.yaml: compute.instructions: found 'avx2', but this CPU has no AVX2; expected 'baseline' or 'native'"
        )
    os.environ.update(INSTRUCTION_VARIABLES[compute.instructions])
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required for deterministic cuBLAS
    torch.set_num_threads(compute.threads)
    # Equivalent to use_deterministic_algorithms, which also imports torch's compiler: 1.5 s for every stage.
    torch.set_deterministic_debug_mode("error" if compute.deterministic else "default")
    # Filling costs a tenth of a training step, and no code here reads uninitialized memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = not compute.deterministic
    # TF32 is faster, but its results differ from those of GPUs without it.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not compute.deterministic
    keep_freed_memory()
    device = select_device(compute.device)
    ENABLED["bfloat16"] = uses_bfloat16(compute, device)
    return device


def uses_bfloat16(compute: Compute, device: torch.device) -> bool:
    is_supported = has_bfloat16_units(device, compute.instructions)
    if compute.precision == "bfloat16" and not is_supported:
        why = f" with compute.instructions {compute.instructions!r}" if device.type == "cpu" else ""
        raise UserError(
            f"params.yaml: compute.precision: found 'bfloat16', but this {device.type} has no units for it{why}; "
            "expected 'float32' or 'auto'"
        )
    return is_supported and compute.precision != "float32"


def has_bfloat16_units(device: torch.device, instructions: str) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return instructions == "native" and any(torch.cpu.get_capabilities().get(name) for name in BFLOAT16_UNITS)
    return False


def autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Context for a forward pass: products and convolutions in bfloat16, if configured; weights stay in float32."""
    return torch.autocast(device.type, torch.bfloat16) if ENABLED["bfloat16"] else contextlib.nullcontext()


def keep_freed_memory() -> None:
    """Make glibc's malloc reuse the memory of freed tensors.

    By default it returns large blocks to the system, which then has to clear every page of the next one: a third of
    the time of a small network. Other mallocs are left as they are.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, value in ((M_TRIM_THRESHOLD, 1 << 30), (M_MMAP_MAX, 0)):
            library.mallopt(option, value)


def select_device(name: str) -> torch.device:
    if name == "cpu":  # do not ask for a GPU: that starts CUDA, which takes memory on every GPU
        return torch.device("cpu")
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if present[kind]))
    if not present[name]:
        devices = ", ".join(kind for kind, is_present in present.items() if is_present)
        raise UserError(f"params.yaml: compute.device: found {name!r}, but this machine has only {devices}")
    return torch.device(name)


def lacks_avx2() -> bool:
    """False on other CPUs than x86, where the variables have no effect."""
    return platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_avx2_supported()


def fingerprint() -> dict[str, Any]:
    """Hardware and libraries that may affect bits: recorded with the demo's results, shown by `codline doctor`."""
    build = torch.__config__.show()
    return {
        "cpu": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn": first_match(r"MKL-DNN v(\S+)", build),
        "mkl": first_match(r"Math Kernel Library Version ([\d.]+)", build),
        "libc": " ".join(platform.libc_ver()).strip() or "none",  # numpy takes exp and log from it
        "machine": platform.machine(),
        "system": platform.system(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def first_match(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else "none"


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    lines = [line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line]
    fields = {key.strip(): value.strip() for key, value in lines}
    vendor, family, model = (fields.get(key, "") for key in ("vendor_id", "cpu family", "model"))
    return f"{vendor} family {family} model {model}".strip()
