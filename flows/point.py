"""A point of a study: `codline run`, which ends when the study does, however that ends: python -m flows.point"""

import sys

from codline.watch import watch

if __name__ == "__main__":
    watch()
    from flows import cli

    sys.argv = ["codline", "run"]
    cli.main()
