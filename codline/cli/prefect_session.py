"""The Prefect server of a flow that runs in this process."""

import contextlib
import logging
from collections.abc import Iterator

from codline.core.errors import Stopped


@contextlib.contextmanager
def prefect_session() -> Iterator[str]:
    """Use the Prefect server of the user or the workspace, which is yielded; Ctrl-C raises Stopped."""
    from codline.orchestration.prefect_connection import prefect_connection
    from codline.orchestration.prefect_server import local_server

    with local_server() as api:
        try:
            with prefect_connection():
                yield api
        except KeyboardInterrupt as error:  # typer would exit with the same code, but without a message
            raise Stopped from error
        finally:
            flush_logs()  # the server receives the log lines, so before it is stopped


def flush_logs() -> None:
    for logger in ("prefect.flow_runs", "prefect.task_runs"):
        for handler in logging.getLogger(logger).handlers:
            handler.flush()
