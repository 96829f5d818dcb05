"""Quantities as text for users."""


def format_bytes(count: float) -> str:
    """In decimal units, as disks and memory are sold."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
