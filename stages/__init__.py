"""What is done, on which files: one module per stage of dvc.yaml, run as `python -m stages NAME`.

A stage imports what needs torch, scipy or matplotlib in its function: these take seconds, and check_params imports the
`Params` of every stage to refuse a wrong value at once.
"""

import codline.data  # noqa: F401 (pins numpy's CPU code, so before a stage imports numpy)
from codline.runtime.code_files import code_at_start

code_at_start()  # before a stage imports its code
