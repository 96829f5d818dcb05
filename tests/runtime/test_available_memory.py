"""Available memory, read from files as the kernel writes them."""

from pathlib import Path

import pytest

from codline.runtime.available_memory import available_memory

MEMINFO = (
    "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\nHugePages_Total:       0\n"
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def measure(root: Path) -> int | None:
    write(root, {"proc/meminfo": MEMINFO})
    return available_memory(root / "proc", root / "cgroup")


def group(folder: str, limit: str, used: int, cached: int = 0) -> dict[str, str]:
    """A control group of version 2; half of its cache is active."""
    stat = f"anon 5\nfile {cached}\ninactive_file {cached // 2}\nactive_file {cached // 2}\n"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def test_available_memory_of_this_machine_is_less_than_it_has() -> None:
    available = available_memory()
    assert available is not None
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < available <= total


def test_available_memory_is_the_machine_s_without_a_limit(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/user.slice\n"} | group("cgroup/user.slice", "max", 10))
    assert measure(tmp_path) == 2_000_000 * 1024


@pytest.mark.parametrize(("inner", "outer"), [("5000", "max"), ("max", "5000"), ("5000", "9000"), ("9000", "5000")])
def test_available_memory_is_what_the_tightest_group_leaves_with_its_cache(
    tmp_path: Path, inner: str, outer: str
) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/job/step\n"})
    write(tmp_path, group("cgroup/job/step", inner, 1500, 500) | group("cgroup/job", outer, 1500, 500))
    assert measure(tmp_path) == 5000 - 1500 + 500


def test_available_memory_reads_groups_of_version_1(tmp_path: Path) -> None:
    files = {"memory.limit_in_bytes": "5000\n", "memory.usage_in_bytes": "2000\n"}
    files["memory.stat"] = "cache 700\ntotal_inactive_file 300\ntotal_active_file 400\n"
    write(tmp_path, {"proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job\n0::/job\n"})
    write(tmp_path, {f"cgroup/memory/job/{name}": text for name, text in files.items()})
    assert measure(tmp_path) == 5000 - 2000 + 700


def test_available_memory_is_unknown_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert available_memory(tmp_path, tmp_path) is None
