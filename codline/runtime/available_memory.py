"""Memory that this process can still use: of the machine, and within the limits of its control groups (containers)."""

from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Files of a control group: its limit, its use, and the fields of memory.stat that the kernel frees on demand.
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
VERSION_2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))


def available_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes; None where the system does not tell (not Linux)."""
    try:
        machine = read_fields(proc / "meminfo")["MemAvailable:"] * 1024
    except (OSError, KeyError):
        return None
    return min([machine, *control_group_memory(proc, cgroups)])


def control_group_memory(proc: Path, cgroups: Path) -> Iterator[int]:
    """What is left of the limit of each control group that this process is in, and of those around them."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") or not controllers:
            version, root = (VERSION_1, cgroups / "memory") if controllers else (VERSION_2, cgroups)
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                left = memory_left(folder, *version) if folder.is_relative_to(root) else None
                if left is not None:
                    yield left


def memory_left(folder: Path, limit: str, use: str, freed_on_demand: tuple[str, ...]) -> int | None:
    """None for a group without a limit, or one whose files are not visible in a container."""
    try:
        most, used = ((folder / name).read_text(encoding="utf-8").strip() for name in (limit, use))
        fields = read_fields(folder / "memory.stat")
    except OSError:
        return None
    cached = sum(fields.get(name, 0) for name in freed_on_demand)
    return None if most == "max" else max(0, int(most) - int(used) + cached)


def read_fields(path: Path) -> dict[str, int]:
    """The first number of every line, by its name."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}
