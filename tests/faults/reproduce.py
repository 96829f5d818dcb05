"""Brings stages up to date as a campaign does, in its workspace, but without Prefect.

python -m tests.faults.reproduce STAGE...
"""

import sys

from codline.core.errors import exit_on_error
from codline.orchestration import dvc_lock
from codline.orchestration.workspace import open_workspace


def main() -> None:
    with exit_on_error(), open_workspace() as workspace:
        for stage in sys.argv[1:]:
            workspace.reproduce(stage)
        dvc_lock.keep_stages(sys.argv[1:])


if __name__ == "__main__":
    main()
