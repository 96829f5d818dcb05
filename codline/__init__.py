"""codline decides which images are worth labelling."""

import os
import sys

# "-m" is what Python puts there while it looks for the module to run: then a process that has torch already may run it in our place.
if sys.argv[:1] == ["-m"] and "CODLINE_WARM" in os.environ:
    from codline.runtime.fork_server import hand_over

    hand_over()
