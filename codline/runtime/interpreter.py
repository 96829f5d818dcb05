"""The Python interpreter of stages: that of the command that starts them, with the libraries of requirements.lock."""

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from codline.core.errors import UserError, first_names

PIN = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)


def put_interpreter_first() -> None:
    """On the PATH: the commands in dvc.yaml start with `python`, which has to be this one."""
    binaries = str(Path(sys.executable).parent)
    if not os.environ.get("PATH", "").startswith(binaries):
        os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"


def check_libraries(lock: Path) -> None:
    """Refuse installed libraries of other versions than a requirements.lock has; some may not be installed."""
    pins = dict[str, set[str]]()
    for name, pinned in PIN.findall(lock.read_text(encoding="utf-8")):
        pins.setdefault(name, set()).add(pinned)
    others = [f"{name} {found}" for name, found in installed(pins).items() if found not in pins[name]]
    if others:
        expected = ", ".join(sorted(pins[others[0].split()[0]]))
        found = f"this environment has {first_names(others)}, and {lock.name} of the commit has {expected}"
        raise UserError(f"{found}; run `make setup` in a clone of that commit, and start the worker from it")


def installed(names: dict[str, set[str]]) -> dict[str, str]:
    """{name: version} of those that are."""
    versions = dict[str, str]()
    for name in names:
        try:
            versions[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return versions
