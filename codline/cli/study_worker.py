"""A point of a study: `codline run`, which ends when the study does, however that ends: python -m codline.cli.study_worker"""

import sys

from codline.runtime.process_lifetime import watch

if __name__ == "__main__":
    watch()
    from codline.cli import main

    sys.argv = ["codline", "run"]
    main.main()
