"""What is done, on which files: one module per stage of dvc.yaml."""

import os
import platform

# numpy's AVX-512 exp and log differ in their last bits from those of every other CPU, and scores are made of them.
# Here, not in codline.compute: numpy reads this once, when it is first imported. It does too little to be missed in speed.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"
