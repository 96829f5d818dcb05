"""Tables and stores that stages exchange, and what they are made from. Importing it pins numpy's choice of CPU code."""

import os
import platform

# numpy's AVX-512 exp and log differ in the last bits from those of other CPUs, and scores are made of them. numpy reads
# this once, when it is first imported, so it is set here rather than in codline.learning.compute.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"
