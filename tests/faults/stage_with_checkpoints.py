"""Runs a stage that writes a checkpoint after every epoch, as if epochs took long.

python -m tests.faults.stage_with_checkpoints stages.train ARGUMENT...
"""

import runpy
import sys

if __name__ == "__main__":
    import stages  # noqa: F401 (first, as in every stage)
    from codline.learning import checkpoints

    checkpoints.INTERVAL_SECONDS = 0
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
