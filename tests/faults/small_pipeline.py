"""A DVC repository with two stages that take no time: what is left of a run is what DVC and our driver do."""

import os
import shutil
import time
from pathlib import Path

from dvc.repo import Repo

from tests.faults.fault_points import Ended, Fault, FaultPoints
from tests.project import BIN, running_commands
from tests.workspace import REPOSITORY

STAGES = ["double", "folder"]
PIPELINE = """stages:
  double:
    cmd: python begin.py && cat single single > double
    deps: [single]
    params: [seed]
    outs: [double]
  folder:
    cmd: python begin.py && mkdir -p folder && cp double folder/a && cp single folder/b
    deps: [double, single]
    outs: [folder]
"""
BEGIN = "from codline.runtime import background\nbackground.start_for_dvc()\n"  # as every stage of codline does
RESULTS = ("dvc.lock", "double", "folder/a", "folder/b")


class SmallPipeline:
    def __init__(self, faults: FaultPoints, root: Path) -> None:
        self.faults, self.root, self.fresh = faults, root, root.with_name("fresh")
        self.fresh.mkdir()
        Repo.init(str(self.fresh), no_scm=True).close()
        texts = {"dvc.yaml": PIPELINE, "params.yaml": "seed: 0\n", "begin.py": BEGIN, "single": "once\n"}
        for name, text in texts.items():
            (self.fresh / name).write_text(text)
        self.environment = {
            "PYTHONPATH": str(REPOSITORY),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "CODLINE_TRACKING": "off",
            "DVC_NO_ANALYTICS": "1",
        }
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.fresh, self.root)

    def run_dvc(self, at: int = 0, error: int = 0, lasts: bool = False) -> Ended:
        return self.run(Fault(self.root, at, error, lasts), "dvc", "repro")

    def run_codline(self, at: int = 0, error: int = 0, lasts: bool = False) -> Ended:
        return self.run(Fault(self.root, at, error, lasts), "tests.faults.reproduce", *STAGES)

    def run(self, fault: Fault, module: str, *words: str) -> Ended:
        ended = self.faults.run(fault, module, *words, **self.environment)
        deadline = time.monotonic() + 60
        while running_commands(self.root) and time.monotonic() < deadline:  # the fork server repairs, and ends
            time.sleep(0.01)
        return ended

    def results(self) -> list[bytes]:
        return [(self.root / name).read_bytes() if (self.root / name).exists() else b"" for name in RESULTS]

    def cache_is_whole(self) -> bool:
        """Whether DVC's cache has every object under its hash."""
        from codline.runtime.object_store import ObjectStore

        objects = ObjectStore(self.root / ".dvc/cache/files/md5")
        hashes = [path.parent.name + path.name for path in objects.root.glob("[0-9a-f][0-9a-f]/*")]
        return not any(objects.is_damaged(md5) for md5 in hashes if not md5.endswith(".tmp"))
