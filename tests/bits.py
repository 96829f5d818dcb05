"""Damage as a failing disk makes it: a flipped bit, at the same size and time."""

import os
from pathlib import Path


def flip_bit(path: Path, bit: int) -> None:
    status, mode = path.stat(), path.stat().st_mode
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)  # DVC's objects are read-only
    with path.open("r+b") as file:
        file.write(content)
    path.chmod(mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
