"""Network namespaces: machines of their own, as far as addresses are concerned. They need root, or its capabilities."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ADDRESSES = ("10.77.1.1", "10.77.1.2")
DEVICE = "wire0"
LISTENS = "0A"  # state in /proc/net/tcp


class Namespace:
    """A namespace that lives as long as the process that holds it."""

    def __init__(self) -> None:
        hold = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"]
        self.holder = subprocess.Popen(hold, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.holder.stdout is not None
        self.is_up = self.holder.stdout.readline() == "up\n"

    def command(self, *words: str) -> list[str]:
        """The command that runs these words in the namespace."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", *words]

    def end(self) -> None:
        if self.is_up:
            kill_processes(self.holder.pid)
        self.holder.kill()
        self.holder.communicate()


@contextlib.contextmanager
def two_namespaces() -> Iterator[list[Namespace]]:
    """Two machines, with ADDRESSES, that reach each other and nothing else."""
    pair = [Namespace(), Namespace()]
    try:
        if not all(each.is_up for each in pair):
            pytest.skip("no permission to make network namespaces")
        first, second = (str(each.holder.pid) for each in pair)
        link = ["ip", "link", "add", DEVICE, "netns", first, "type", "veth", "peer", "name", DEVICE, "netns", second]
        subprocess.run(link, check=True)
        for each, address in zip(pair, ADDRESSES, strict=True):
            setup = (
                f"ip addr add {address}/24 dev {DEVICE} && ip link set {DEVICE} up && ip route add default dev {DEVICE}"
            )
            subprocess.run(each.command("sh", "-c", setup), check=True)
        yield pair
    finally:
        for each in pair:
            each.end()


def processes_of(holder: int) -> list[int]:
    """The other processes of the namespace that this process holds."""
    found, namespace = list[int](), Path(f"/proc/{holder}/ns/net").readlink()
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (directory / "ns/net").readlink() == namespace:
                found.append(int(directory.name))
    return [pid for pid in found if pid != holder]


def kill_processes(holder: int) -> None:
    """SIGKILL all of them."""
    for pid in processes_of(holder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def listeners() -> set[str]:
    """Addresses, in the kernel's hexadecimal form, at which processes of this namespace listen."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {fields[1].rpartition(":")[0] for fields in lines if fields[3] == LISTENS}
