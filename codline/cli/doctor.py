"""Explains why outputs differ from the recorded ones: compares this machine and dvc.lock with the committed record.

python -m codline.cli.doctor [--record]
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from codline.core.errors import exit_on_error
from codline.core.files import read_json, write_json
from codline.core.params import Compute, parse_section, read_yaml
from codline.learning.compute import configure, cpu_model, fingerprint

RECORD = Path("docs/recorded-machine.json")  # the machine that computed the committed dvc.lock
LIBRARIES = [
    *("torch", "torchvision", "numpy", "scipy", "scikit-learn"),
    *("pyarrow", "safetensors", "matplotlib", "pillow"),
]


def machine_facts() -> dict[str, str]:
    """Everything that can change the bytes of outputs, besides params.yaml and code."""
    compute = parse_section(read_yaml(Path("params.yaml")), "compute", Compute)
    configure(compute)
    settings = {f"compute.{name}": str(getattr(compute, name)) for name in ("instructions", "threads", "precision")}
    hardware = {key: str(value) for key, value in fingerprint().items()}
    return settings | hardware | {name: version(name) for name in LIBRARIES}


def differences(recorded: dict[str, str], here: dict[str, str]) -> list[str]:
    """Facts that differ and can change bytes.

    The CPU's model cannot if `compute.instructions` is avx2. With `baseline` it can: the C library still uses FMA where
    the CPU has it. See docs/reproducibility.md.
    """
    harmless = {"cpu"} if here.get("compute.instructions") == "avx2" else set()
    return [key for key in recorded | here if recorded.get(key) != here.get(key) and key not in harmless]


def cpu_differs(record: Path) -> bool:
    return bool(read_json(record)["cpu"] != cpu_model())


def changed_outputs() -> list[str]:
    """Outputs whose hash in dvc.lock differs from the last commit, in the order of the campaign."""
    committed = subprocess.run(["git", "show", "HEAD:./dvc.lock"], capture_output=True, text=True, check=False)
    if committed.returncode or not Path("dvc.lock").exists():
        return []
    before, now = output_hashes(committed.stdout), output_hashes(Path("dvc.lock").read_text(encoding="utf-8"))
    return [path for path, value in now.items() if path in before and before[path] != value]


def output_hashes(lock: str) -> dict[str, Any]:
    """{output: hash} from the text of a dvc.lock."""
    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}


def main() -> None:
    here = machine_facts()
    if "--record" in sys.argv:
        write_json(RECORD, here)
        return
    recorded: dict[str, str] = read_json(RECORD) if RECORD.exists() else {}
    differing = differences(recorded, here)
    table = Table("", "on record", "here", title="What bytes may depend on")
    for key in recorded | here:
        style = "bold yellow" if key in differing else None
        table.add_row(key, recorded.get(key, "-"), here.get(key, "-"), style=style)
    console = Console()
    console.print(table)
    changed = changed_outputs()
    if changed:
        console.print(f"{len(changed)} outputs differ from the committed dvc.lock; the first is {changed[0]}.")
    else:
        console.print("Every output in dvc.lock is as committed.")
    if differing:
        console.print(
            f"This machine differs in {', '.join(differing)}: expect outputs that differ from the recorded ones, "
            "but are the same on every run here."
        )
    else:
        console.print("This machine is of the recorded kind: the same params.yaml and code must give the same bytes.")


if __name__ == "__main__":
    with exit_on_error():
        main()
