"""Run one stage: python -m stages NAME ARGUMENTS

Imports nothing slow itself: where a fork server runs, the stage is forked from it, with torch already imported.
"""

import os
import runpy
import sys
from pathlib import Path

from codline.core.errors import UserError, exit_on_error
from codline.runtime import background, fork_server
from codline.runtime.process_lifetime import OWNER, ancestors, end_with_parents
from codline.runtime.recorded_outputs import name_campaign


def main() -> None:
    end_with_parents()  # before slow imports, during which a parent could die unnoticed
    with exit_on_error():
        background.start_for_dvc()
    name_campaign()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if not Path(__file__).with_name(f"{name}.py").is_file():
        sys.stderr.write(f"codline: found {name or 'no stage'}, expected a stage of dvc.yaml: python -m stages NAME\n")
        sys.exit(UserError.exit_code)
    module = f"stages.{name}"
    owner = int(os.environ.get(OWNER) or ancestors()[-1])
    path = fork_server.socket_path(owner)
    os.environ[fork_server.SOCKET] = str(path)  # for the workers of the stage's passes
    fork_server.run_forked(path, module, sys.argv[2:])
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with exit_on_error():  # of what precedes the stage, on a full disk
        main()
