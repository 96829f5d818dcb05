"""Why do bytes differ? Compares this machine, and this dvc.lock, with the ones on record: python -m codline.doctor [--record]"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from codline.core.files import read_json, write_json
from codline.core.params import Compute, load, section
from codline.learning.compute import configure, cpu_model, fingerprint

RECORD = Path("docs/recorded-machine.json")  # the machine that the committed dvc.lock was made on
LIBRARIES = (
    "torch",
    "torchvision",
    "torchmetrics",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "safetensors",
    "matplotlib",
    "pillow",
)


def facts() -> dict[str, str]:
    """Everything besides params.yaml and code that may move bytes."""
    compute = section(load(Path("params.yaml")), "compute", Compute)
    configure(compute)
    pinned = {f"compute.{name}": str(getattr(compute, name)) for name in ("instructions", "threads", "precision")}
    return (
        pinned | {key: str(value) for key, value in fingerprint().items()} | {name: version(name) for name in LIBRARIES}
    )


def differences(recorded: dict[str, str], here: dict[str, str]) -> list[str]:
    """What can move bytes. Another CPU cannot where AVX2 is pinned; `baseline` does not reach the C library's use of FMA. See docs/reproducibility.md."""
    harmless = {"cpu"} if here.get("compute.instructions") == "avx2" else set()
    return [key for key in recorded | here if recorded.get(key) != here.get(key) and key not in harmless]


def cpu_differs(record: Path) -> bool:
    """Whether this CPU is of another kind than the recorded one."""
    return bool(read_json(record)["cpu"] != cpu_model())


def changed_outputs() -> list[str]:
    """Outputs whose hash in dvc.lock is another than in the last commit, in the order of the campaign."""
    committed = subprocess.run(["git", "show", "HEAD:./dvc.lock"], capture_output=True, text=True, check=False)
    if committed.returncode or not Path("dvc.lock").exists():
        return []
    before, now = hashes(committed.stdout), hashes(Path("dvc.lock").read_text(encoding="utf-8"))
    return [path for path, value in now.items() if path in before and before[path] != value]


def hashes(lock: str) -> dict[str, Any]:
    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}


def main() -> None:
    here = facts()
    if "--record" in sys.argv:
        write_json(RECORD, here)
        return
    recorded: dict[str, str] = read_json(RECORD) if RECORD.exists() else {}
    console = Console()
    rows = Table("", "on record", "here", title="What bytes may depend on")
    other = differences(recorded, here)
    for key in recorded | here:
        rows.add_row(key, recorded.get(key, "-"), here.get(key, "-"), style="bold yellow" if key in other else None)
    console.print(rows)
    changed = changed_outputs()
    if changed:
        console.print(f"{len(changed)} outputs differ from the committed dvc.lock, the first being {changed[0]}.")
    else:
        console.print("Every output in dvc.lock is as committed.")
    if other:
        console.print(
            f"This machine differs in {', '.join(other)}: other bytes than those on record are to be expected, the same bytes on every run here."
        )
    else:
        console.print("This machine is of the recorded kind: the same params.yaml and code must give the same bytes.")


if __name__ == "__main__":
    main()
