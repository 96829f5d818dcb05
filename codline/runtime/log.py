"""Warnings for users: the logger `codline` writes each as one line to standard error, as errors are written."""

import logging
import os
import sys

from codline.core.errors import one_line
from codline.runtime import state_directory


class WarningLines(logging.Handler):
    """Writes `codline: sentence`, or `codline: STAGE: sentence`.

    Those of a stage are also kept in a note, from which a campaign shows them: next to its progress bars, lines that
    another process writes would not be legible.
    """

    def __init__(self, stage: str | None) -> None:
        super().__init__(logging.WARNING)
        self.stage, self.sentences = stage, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        sentence = one_line(record.getMessage())
        if self.stage is None:
            sys.stderr.write(f"codline: {sentence}\n")
            return
        self.sentences.append(sentence)
        state_directory.write_note("warnings", self.stage, {"sentences": self.sentences})
        if not os.environ.get("CODLINE_QUIET"):
            sys.stderr.write(f"codline: {self.stage}: {sentence}\n")


def show_warnings(stage: str | None = None) -> None:
    """Call once per process, in a stage with its name."""
    logger = logging.getLogger("codline")
    logger.handlers, logger.propagate = [WarningLines(stage)], False


def stage_warnings(stage: str) -> list[str]:
    """The warnings of the stage's last run."""
    note = state_directory.read_note("warnings", stage)
    return [] if note is None else list(note["sentences"])
