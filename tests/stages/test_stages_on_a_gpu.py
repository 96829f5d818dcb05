"""Stages that run models do so on a GPU from their first file to their last; here on one without values."""

import pytest

from codline.learning import compute, image_reader
from tests.simulated_gpu import DEVICE, SimulatedGpu
from tests.workspace import SMALL_PARAMS, Workspace

# Values that the host reads one by one, as opposed to whole tensors that are stored.
READ_VALUES = {
    "prepare": 0,
    "train": 5 * SMALL_PARAMS["train.epochs"],  # a row of the training curve, and whether training diverged
    "score": 0,
    "evaluate": 0,
    "diagnose": 0,
}
pytestmark = pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # it has no values, as intended


@pytest.mark.parametrize("stage", READ_VALUES)
def test_stage_runs_on_a_gpu_and_reads_single_values_once_an_epoch_at_most(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    cycle = None if stage == "prepare" else "c2"
    for path in workspace.outputs(stage, cycle):
        path.unlink()
    for module in (compute, image_reader):
        monkeypatch.setattr(module, "select_device", lambda _: DEVICE)
    with SimulatedGpu() as gpu:
        workspace.run(stage, cycle)
    assert gpu.waits  # so the stage has used the device
    assert sum(wait.startswith("value read") for wait in gpu.waits) == READ_VALUES[stage]
    assert all(path.exists() for path in workspace.outputs(stage, cycle))
