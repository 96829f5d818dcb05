"""What is done, on which files: one module per stage of dvc.yaml, run as `python -m stages NAME`."""

import codline.data  # noqa: F401 (pins numpy's CPU code, so before a stage imports numpy)
