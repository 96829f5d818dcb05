"""A stage of a small campaign as a command in which faults happen."""

import shutil
from pathlib import Path

from tests.faults.fault_points import Ended, Fault, FaultPoints
from tests.workspace import Workspace

MODULE = "tests.faults.stage_with_checkpoints"
STAGES = ("prepare", "train", "score", "select", "annotate", "merge", "evaluate", "diagnose", "report")


class StageCommand:
    """Run by a child of the fork server of `FaultPoints`."""

    def __init__(self, faults: FaultPoints, workspace: Workspace, stage: str) -> None:
        self.faults, self.workspace = faults, workspace
        cycle = None if stage in ("prepare", "report") else "c2"
        arguments = workspace.pipeline.arguments(stage, cycle).items()
        words = [word for name, value in arguments for word in (f"--{name.replace('_', '-')}", value)]
        self.words = [f"stages.{stage}", *words]
        self.outputs = workspace.outputs(stage, cycle)

    def run(self, at: int = 0, error: int = 0, lasts: bool = False) -> Ended:
        fault = Fault(self.workspace.root, at, error, lasts)
        return self.faults.run(fault, MODULE, *self.words, CODLINE_TRACKING="off")

    def run_undisturbed(self) -> None:
        ended = self.run()
        assert ended.code == 0, ended.output

    def contents(self) -> dict[Path, bytes]:
        """Files of outputs that exist, except those under temporary names."""
        paths = [path for out in self.outputs for path in (out.rglob("*") if out.is_dir() else [out])]
        return {path: path.read_bytes() for path in paths if path.is_file()}

    def clear(self) -> None:
        """Remove outputs, checkpoints and notes."""
        for path in (*self.outputs, self.workspace.root / ".codline"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
