"""Puts params.yaml back if a stage refuses the values that a campaign was started with."""

import contextlib
from collections.abc import Iterator
from typing import Any

from codline.core.errors import DataError, UserError
from codline.core.files import atomic_write
from codline.orchestration import dvc_lock
from codline.orchestration.dvc_stages import restore_outputs
from codline.orchestration.inputs import remove_other_manifests
from codline.orchestration.params_file import PARAMS, update_params
from codline.orchestration.workspace import Workspace

ASKS_PEOPLE = "annotate"  # its errors concern the answers that it waits for, not parameters


@contextlib.contextmanager
def campaign_params(workspace: Workspace, changes: dict[str, Any], preset: str | None) -> Iterator[None]:
    """Write the changes to params.yaml; undo it if a stage refuses them before any stage has run with them.

    Inside another `campaign_params` without changes, the params.yaml that it has checked is not checked again.
    """
    before, lock = (path.read_bytes() if path.exists() else b"" for path in (PARAMS, dvc_lock.LOCK))
    if changes or preset or before != workspace.checked_params:
        update_params(changes, preset)
    written = workspace.checked_params = PARAMS.read_bytes()
    try:
        yield
    except (UserError, DataError) as error:
        stages = workspace.refused_stages()
        waits = any(stage.startswith(ASKS_PEOPLE) for stage in stages)
        if written == before or not stages or waits or PARAMS.read_bytes() != written:
            raise
        with atomic_write(PARAMS) as part:
            part.write_bytes(before)
        dvc_lock.restore(lock)
        remove_other_manifests()
        restore_outputs(stages)  # DVC has deleted them before it ran the stage
        raise type(error)(f"{error}; params.yaml has its previous values again") from error
