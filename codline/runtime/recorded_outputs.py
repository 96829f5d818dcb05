"""The outputs that dvc.lock records, and the check of a stage's inputs against them.

DVC trusts its database of sizes and times, so that it does not notice a flipped bit. Here every byte is read.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from codline.core.errors import DataError
from codline.core.files import file_version
from codline.core.locks import file_lock
from codline.runtime import state_directory
from codline.runtime.directory_hash import DIRECTORY, output_md5
from codline.runtime.process_lifetime import OWNER, ancestors, start_time

LOCK = Path("dvc.lock")
CAMPAIGN = "CODLINE_CAMPAIGN"  # environment variable: identifies the campaign, or the run of DVC, of a stage
Verified = dict[str, list[str]]  # {file or directory: its hash and version (see file_version)}


@dataclass(frozen=True)
class RecordedOutput:
    stage: str
    path: str
    md5: str

    @property
    def is_directory(self) -> bool:
        return self.md5.endswith(DIRECTORY)


def read_recorded_outputs(path: Path = LOCK) -> dict[str, RecordedOutput]:
    """{path: output} of a dvc.lock; empty without one. Reads lines: YAML would take 40 ms for seven cycles."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {output.path: output for output in parse_outputs(lines)}


def parse_outputs(lines: Iterable[str]) -> Iterator[RecordedOutput]:
    """DVC indents the name of a stage by two, `outs` by four, and the keys of an output by six."""
    stage, section, name = "", "", ""
    for line in lines:
        if line.startswith("  ") and line[2:3] not in ("", " "):
            stage, section = unquote(line.strip().removesuffix(":")), ""
        elif line.startswith("    ") and line[4:5] not in ("", " ", "-"):
            section = line.strip().partition(":")[0]
        elif section == "outs" and line.startswith("    - path: "):
            name = unquote(line.removeprefix("    - path: "))
        elif section == "outs" and line.startswith("      md5: "):
            yield RecordedOutput(stage, name, unquote(line.removeprefix("      md5: ")))


def unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def name_campaign() -> None:
    """In a command that DVC runs outside a campaign: the run of DVC is what files are verified once for."""
    if "DVC_STAGE" in os.environ and CAMPAIGN not in os.environ:
        owner = int(os.environ.get(OWNER) or ancestors()[-1])
        os.environ[CAMPAIGN] = f"{owner}-{start_time(owner)}"


def refuse_damaged_inputs(inputs: list[Path]) -> None:
    """Compare inputs with the hashes in dvc.lock, each once per campaign; not in a stage that is run by hand."""
    if "DVC_STAGE" not in os.environ or CAMPAIGN not in os.environ:
        return
    campaign, checked = os.environ[CAMPAIGN], Verified()
    verified = read_verified(campaign)
    for output in recorded_inputs(inputs):
        seen = [output.md5, file_version(output.path)]
        if verified.get(output.path) != seen:
            if output_md5(Path(output.path)) != output.md5:
                raise DataError(damage_sentence(output))
            checked[output.path] = seen
    if checked:
        add_verified(campaign, checked)


def read_verified(campaign: str) -> Verified:
    note = state_directory.read_note("verified", "inputs") or {}
    return note["files"] if note.get("campaign") == campaign else {}


def add_verified(campaign: str, checked: Verified) -> None:
    """Under a lock, because some stages of a campaign run at the same time."""
    with file_lock(state_directory.state_root() / "verified.lock", wait=math.inf):
        note = {"campaign": campaign, "files": read_verified(campaign) | checked}
        state_directory.write_note("verified", "inputs", note)


def recorded_inputs(inputs: list[Path]) -> list[RecordedOutput]:
    """The recorded outputs that these inputs are, or contain, as far as they exist."""
    outputs, names = read_recorded_outputs().values(), [path.as_posix() for path in inputs]
    roots = tuple(f"{name}/" for name in names)
    found = [output for output in outputs if output.path in names or output.path.startswith(roots)]
    return [output for output in found if Path(output.path).exists()]


def damage_sentence(output: RecordedOutput) -> str:
    kind = "directory" if output.is_directory else "file"
    found = f"{output.path}: differs from the {kind} that dvc.lock records for {output.stage}"
    found += ": damaged, or changed by hand"
    return f"{found}; `codline verify --repair` restores it, `dvc commit {output.stage}` accepts it as it is"
