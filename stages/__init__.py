"""What is done, on which files: one module per stage of dvc.yaml."""

import os
import platform
import sys

from codline.runtime.process_lifetime import watch

# As early as can be: importing torch takes seconds, and a stage whose parent is killed meanwhile must not live on.
# "-m" is what Python puts there while it looks for the module to run; on a plain import it is something else.
if sys.argv[:1] == ["-m"]:
    watch()

# numpy's AVX-512 exp and log differ in their last bits from those of every other CPU, and scores are made of them.
# Here, not in codline.compute: numpy reads this once, when it is first imported. It does too little to be missed in speed.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"
