"""Device, threads, instructions and precision are those of params.yaml, or are refused."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codline.core.errors import UserError
from codline.core.params import Compute
from codline.learning import compute, inference
from codline.learning.augmentation import Augmentation
from codline.learning.fit import TrainingData, fit
from codline.learning.recipe import Recipe
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from codline.objectives.base import Objective, TrainingContext
from codline.objectives.cyclic import CyclicObjective
from codline.objectives.ema import EmaObjective
from codline.objectives.ll4al import Ll4alObjective

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)
NORMALIZE = inference.Normalize([0.5], [0.25], CPU)


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable bfloat16 on any CPU."""
    monkeypatch.setitem(compute.ENABLED, "bfloat16", True)


def test_select_device_refuses_a_device_that_this_machine_lacks() -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(UserError, match=f"compute.device: found '{missing}', but this machine has only cpu"):
        compute.select_device(missing)


def test_select_device_auto_returns_a_usable_device() -> None:
    assert torch.zeros(1, device=compute.select_device("auto")).sum() == 0


def test_configure_sets_threads_and_determinism() -> None:
    try:
        compute.configure(Compute(device="cpu", threads=2, deterministic=False))
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    finally:
        compute.configure(Compute(device="cpu"))
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("precision", "instructions", "units", "expected"),
    [
        ("float32", "native", ["avx512_bf16"], False),
        ("auto", "native", ["avx512_bf16"], True),
        ("auto", "native", ["amx_bf16"], True),
        ("auto", "native", [], False),
        ("auto", "avx2", ["avx512_bf16", "amx_bf16"], False),  # oneDNN does not use them if restricted to AVX2
        ("bfloat16", "native", ["avx512_bf16"], True),
    ],
)
def test_uses_bfloat16_if_requested_and_the_cpu_has_units_for_it(
    monkeypatch: pytest.MonkeyPatch, precision: Any, instructions: Any, units: list[str], expected: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(units, True))
    assert compute.uses_bfloat16(Compute(device="cpu", precision=precision, instructions=instructions), CPU) is expected


def test_uses_bfloat16_only_on_gpus_that_support_it_without_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert compute.uses_bfloat16(Compute(device="cuda", precision="auto"), torch.device("cuda"))
    assert not compute.uses_bfloat16(Compute(device="mps", precision="auto"), torch.device("mps"))


def test_configure_refuses_bfloat16_without_units_for_it() -> None:
    refusal = (
        r"compute\.precision: found 'bfloat16', but this cpu has no units for it "
        r"with compute\.instructions 'avx2'; expected"
    )
    with pytest.raises(UserError, match=refusal):
        compute.configure(Compute(device="cpu", precision="bfloat16"))


def outputs_of(network: Network, pixels: np.ndarray) -> list[np.ndarray]:
    """Logits, features and logits of a dropout pass."""
    requested = inference.RequestedOutputs(features=True, dropout_factors=torch.ones(2, 64))
    ids = np.arange(len(pixels))
    (batch,) = inference.forward_batches([network], pixels.__getitem__, ids, NORMALIZE, len(ids), requested)
    assert batch.features is not None
    return [batch.logits[0], batch.features, next(batch.dropout_logits)]


def test_inference_in_bfloat16_rounds_products_and_returns_float32(bfloat16: None) -> None:
    network = SmallCnn(width=4).seeded_network(3, SHAPE, 0)
    pixels = np.random.default_rng(0).integers(0, 256, (16, *SHAPE), np.uint8)
    all_rounded = outputs_of(network, pixels)
    compute.ENABLED["bfloat16"] = False
    for rounded, exact in zip(all_rounded, outputs_of(network, pixels), strict=True):
        assert rounded.dtype == exact.dtype == np.float32
        assert (rounded != exact).any()
        assert np.abs(rounded - exact).max() < 0.02 * np.abs(exact).max()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    "objectives",
    [[], [EmaObjective()], [EmaObjective(heads=2), Ll4alObjective()], [CyclicObjective()], [Ll4alObjective()]],
    ids=lambda objectives: "-".join(objective.name for objective in objectives),
)
def test_training_in_bfloat16_learns_and_keeps_float32_weights(bfloat16: None, objectives: list[Objective]) -> None:
    network, previous = (SmallCnn(width=4).seeded_network(2, SHAPE, seed) for seed in (0, 1))
    is_dark = np.arange(32) % 2 == 0
    noise = np.random.default_rng(0).integers(0, 40, (32, *SHAPE), np.uint8)
    pixels = np.where(is_dark[:, None, None, None], 40, 200).astype(np.uint8) + noise
    data = TrainingData(
        take=pixels.__getitem__,
        labeled_ids=np.arange(16),
        labels=is_dark[:16].astype(np.int32),
        unlabeled_ids=np.arange(16, 32),
        normalize=NORMALIZE,
    )
    recipe = Recipe(
        epochs=8,
        batch_size=8,
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=0,
        decay_at=1.0,
        decay_by=1.0,
        start_from="previous",
        augment=Augmentation(),
        objectives=objectives,
    )
    final = fit(network, data, recipe, TrainingContext(SHAPE, previous), seed=0)
    assert final.curve[-1]["accuracy"] == 1
    assert {value.dtype for value in final.tensors.values() if value.is_floating_point()} == {torch.float32}


def test_fingerprint_has_what_results_depend_on_and_nothing_private() -> None:
    fingerprint = compute.fingerprint()
    assert {"cpu", "instructions", "machine", "system", "python", "torch", "accelerator"} <= set(fingerprint)
    assert all(isinstance(value, str) and value for value in fingerprint.values())
    assert not {platform.node(), str(Path.home())} & set(fingerprint.values())


@pytest.mark.slow
def test_configure_makes_malloc_reuse_the_memory_of_freed_tensors() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another malloc than glibc's")
    script = """
import resource, torch
from codline.core.params import Compute
from codline.learning.compute import configure
configure(Compute(device="cpu", threads=1))
network = torch.nn.Sequential(*[torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)])
images = torch.randn(1024, 4, 32, 32)
def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with torch.inference_mode():
    for _ in range(3):
        network(images)
    before = page_faults()
    for _ in range(4):
        network(images)
print(page_faults() - before)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(process.stdout) < 4 * 4096  # each of the 16 layer outputs has 4096 pages of 4 kB
