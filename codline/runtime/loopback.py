"""Ports of this machine that nothing outside can reach."""

import contextlib
import socket
from collections.abc import Iterator

from codline.core.errors import BusyError

LOOPBACK = "127.0.0.1"
OPEN = "/open"  # the path at which the owner of a server enters, with its secret


@contextlib.contextmanager
def loopback_listener(port: int, is_fixed: bool) -> Iterator[socket.socket]:
    """A listening socket on this machine at `port`; at any free one if that is in use and not `is_fixed`."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or a port stays blocked after a server's end
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            if is_fixed:
                reason = f"port {port} cannot be used ({error.strerror})"
                raise BusyError(f"{reason}; stop what listens there, or choose another port") from error
            listener.bind((LOOPBACK, 0))
        listener.listen()
        yield listener
