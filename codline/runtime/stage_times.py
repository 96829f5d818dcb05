"""When stages ran: notes of each stage's last run, and from them the time that a cycle took."""

import time
from typing import NamedTuple

from codline.runtime import state_directory
from codline.runtime.campaign_identity import current_key


class Span(NamedTuple):
    """Start and end, in seconds since 1970."""

    start: float
    end: float


def write_times(name: str, seconds: float) -> None:
    """Note that a stage has just ended after this many seconds."""
    note = {"seconds": seconds, "started": time.time() - seconds, "campaign": current_key()}
    state_directory.write_note("seconds", name, note)


def span_of(stages: list[str], campaign: str) -> Span | None:
    """From the start of the first of these stages to the end of the last.

    Stages that ran for another campaign are left out: campaigns that differ in the strategy share the first training,
    which may have run days before. So are stages that have not run again yet since the first one did.
    """
    notes = [state_directory.read_note("seconds", name) or {} for name in stages]
    ours = [note for note in notes if note.get("campaign") == campaign]
    if not ours:
        return None
    start = ours[0]["started"] if ours[0] is notes[0] else min(note["started"] for note in ours)
    return Span(start, max(note["started"] + note["seconds"] for note in ours if note["started"] >= start))
