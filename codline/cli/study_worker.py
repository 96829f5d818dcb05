"""Runs one point of a study: `codline run` that ends when the process of the study dies.

python -m codline.cli.study_worker
"""

import sys

from codline.runtime.process_lifetime import end_with_parents

if __name__ == "__main__":
    end_with_parents()
    from codline.cli import main

    sys.argv = ["codline", "run"]
    main.main()
