"""Device, threads, instructions and precision are what params.yaml says, or the user hears why not."""

import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codline.core.errors import UserError
from codline.core.params import Compute
from codline.learning import compute, inference
from codline.learning.augmentation import Augment
from codline.learning.fit import Examples, Recipe, fit
from codline.models.base import Network
from codline.models.small_cnn import SmallCnn
from codline.objectives.base import Beside, Objective
from codline.objectives.cyclic import Cyclic
from codline.objectives.ema import Ema
from codline.objectives.ll4al import Ll4al
from codline.objectives.none import Nothing


def passes(network: Network, pixels: np.ndarray, wanted: inference.Wanted) -> list[Any]:
    """With the samples of every pass drawn at once."""
    normalize = inference.Normalize([0.5], [0.25], torch.device("cpu"))
    seen = inference.passes([network], pixels.__getitem__, np.arange(len(pixels)), normalize, 16, wanted)
    return [replace(one, samples=list(one.samples)) for one in seen]


def test_a_device_that_is_not_there_is_refused() -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(UserError, match=f"compute.device: found '{missing}', but this machine has only cpu"):
        compute.device(missing)


def test_auto_takes_a_device_that_is_there() -> None:
    assert torch.zeros(1, device=compute.device("auto")).sum() == 0


def test_threads_and_determinism_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
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


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "instructions", "units", "low"),
    [
        ("float32", "native", ["avx512_bf16"], False),
        ("auto", "native", ["avx512_bf16"], True),
        ("auto", "native", ["amx_bf16"], True),
        ("auto", "native", [], False),
        ("auto", "avx2", ["avx512_bf16", "amx_bf16"], False),  # told to keep to AVX2, oneDNN has no use for them
        ("bfloat16", "native", ["avx512_bf16"], True),
    ],
)
def test_numbers_are_short_where_that_is_asked_for_and_the_cpu_has_units_for_them(
    monkeypatch: pytest.MonkeyPatch, precision: Any, instructions: Any, units: list[str], low: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(units, True))
    assert compute.chosen(Compute(device="cpu", precision=precision, instructions=instructions), CPU) is low


def test_a_gpu_is_asked_whether_it_has_units_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: asked.append(including_emulation) or True
    )
    assert compute.chosen(Compute(device="cuda", precision="auto"), torch.device("cuda"))
    assert asked == [False]
    assert not compute.chosen(Compute(device="mps", precision="auto"), torch.device("mps"))


def test_short_numbers_are_refused_where_they_would_take_many_times_as_long() -> None:
    with pytest.raises(
        UserError,
        match=r"compute\.precision: found 'bfloat16', but this cpu has no units for it with compute\.instructions 'avx2'; expected",
    ):
        compute.configure(Compute(device="cpu", precision="bfloat16"))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any CPU: slowly, where it has no units for it."""
    monkeypatch.setitem(compute.CHOSEN, "bfloat16", True)


def test_with_short_numbers_products_are_rounded_and_what_is_handed_out_is_not_short(short: None) -> None:
    network = SmallCnn(width=4).drawn(3, (1, 8, 8), 0)
    pixels = np.random.default_rng(0).integers(0, 256, (16, 1, 8, 8), np.uint8)
    seen = inference.Wanted(features=True, dropouts=torch.ones(2, 64))
    (rounded,) = passes(network, pixels, seen)
    compute.CHOSEN["bfloat16"] = False
    (exact,) = passes(network, pixels, seen)
    for short_one, long_one in (
        (rounded.logits[0], exact.logits[0]),
        (rounded.features, exact.features),
        (rounded.samples[0], exact.samples[0]),
    ):
        assert short_one.dtype == long_one.dtype == np.float32
        assert (short_one != long_one).any()
        assert np.abs(short_one - long_one).max() < 0.02 * np.abs(long_one).max()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    "objective",
    [Nothing(), Ema(), Ema(heads=2), Cyclic(), Ll4al()],
    ids=lambda one: f"{one.name}-{getattr(one, 'heads', '')}",
)
def test_training_with_short_numbers_learns_and_keeps_long_weights(short: None, objective: Objective) -> None:
    network, before = SmallCnn(width=4).drawn(2, (1, 8, 8), 0), SmallCnn(width=4).drawn(2, (1, 8, 8), 1)
    dark = np.arange(32) % 2 == 0
    pixels = np.where(dark[:, None, None, None], 40, 200).astype(np.uint8) + np.random.default_rng(0).integers(
        0, 40, (32, 1, 8, 8), np.uint8
    )
    examples = Examples(
        pixels.__getitem__,
        np.arange(16),
        dark[:16].astype(np.int32),
        np.arange(16, 32),
        inference.Normalize([0.5], [0.25], CPU),
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
        augment=Augment(),
        objective=objective,
    )
    progress = fit(
        network, examples, recipe, seed=0, resume=None, on_epoch=lambda _: None, beside=Beside(previous=before)
    )
    assert progress.curve[-1]["accuracy"] == 1
    assert {value.dtype for value in progress.tensors.values() if value.is_floating_point()} == {torch.float32}


def test_the_fingerprint_names_what_bits_depend_on_and_nothing_private() -> None:
    found = compute.fingerprint()
    assert {"cpu", "instructions", "machine", "system", "python", "torch", "accelerator"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert not {platform.node(), str(Path.home())} & set(found.values())


@pytest.mark.slow
def test_memory_of_a_freed_tensor_is_used_again_instead_of_being_asked_for_anew() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another malloc than glibc's")
    words = """
import resource, torch
from codline.compute import configure
from codline.params import Compute
configure(Compute(device="cpu", threads=1))
network, images = torch.nn.Sequential(*[torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)]), torch.randn(1024, 4, 32, 32)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with torch.inference_mode():
    for _ in range(3):
        network(images)
    before = faults()
    for _ in range(4):
        network(images)
print(faults() - before)
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * 4096  # a layer's output has 4096 pages of 4 kB: sixteen of them otherwise
