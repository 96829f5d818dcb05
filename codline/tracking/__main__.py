"""python -m codline.tracking: follow a stage, sync everything from the files, or make the database."""

import argparse
import os
import sys
import warnings

from codline.core.errors import CodlineError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m codline.tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    follower = commands.add_parser("follow", help="beside a stage: log what it does, told when on the standard input")
    follower.add_argument("stage")
    follower.add_argument("cycle", nargs="?")
    commands.add_parser("sync", help="log everything that the files say and MLflow does not know yet")
    commands.add_parser("init", help="make the database and the experiment, which takes seconds the first time")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # MLflow's advice to whoever writes models
    if arguments.command == "follow":
        from codline.tracking.follower import follow

        follow(arguments.stage, arguments.cycle)
    try:
        connect(everything=arguments.command == "sync")
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)


def connect(everything: bool) -> None:
    from codline.runtime.pipeline import Pipeline
    from codline.tracking.store import Store, answering
    from codline.tracking.sync import sync, turn

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    with answering():
        with turn():  # two that make the database at once would trip over each other
            store = Store()
        if everything:
            pipeline = Pipeline()
            for line in sync(store, pipeline, pipeline.cycles):
                sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
