"""python -m codline.tracking: follow a running campaign, log what MLflow is missing, or create its database."""

import argparse
import os
import sys
import warnings

from codline.core.errors import exit_on_error
from codline.runtime import log


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m codline.tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    follow_parser = commands.add_parser("follow", help="log a campaign while it runs, until a line on standard input")
    follow_parser.add_argument("--owner", type=int, help="follow until the process with this id ends instead")
    commands.add_parser("points", help="log finished points of a study, one per line on standard input")
    commands.add_parser("sync", help="log everything that MLflow is missing")
    commands.add_parser("init", help="create the database and the experiment, which takes seconds the first time")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # MLflow's advice to authors of models
    if arguments.command == "follow":
        from codline.tracking.follower import follow

        follow(arguments.owner)
    if arguments.command == "points":
        from codline.tracking.study_log import log_points

        log_points()
        return
    log.show_warnings()
    with exit_on_error():
        connect(log_everything=arguments.command == "sync")


def connect(log_everything: bool) -> None:
    from codline.runtime.pipeline import Pipeline
    from codline.tracking.lock_status import LockStatus
    from codline.tracking.store import MlflowStore, mlflow_errors
    from codline.tracking.sync import exclusive, sync

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    pipeline = Pipeline()
    # Refuses a foreign directory, before a database is created in it.
    cycles = pipeline.cycles if log_everything else []
    with mlflow_errors():
        with exclusive():  # two processes that create the database at once would fail
            store = MlflowStore()
        if log_everything:
            for line in sync(store, pipeline, cycles, LockStatus(pipeline)):
                sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
