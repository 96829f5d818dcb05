"""Listening sockets on this machine."""

import pytest

from codline.core.errors import BusyError
from codline.runtime.loopback import LOOPBACK, loopback_listener


def test_listener_takes_another_port_only_if_the_port_is_not_fixed() -> None:
    with loopback_listener(0, is_fixed=False) as first:
        host, taken = first.getsockname()
        assert host == LOOPBACK
        with loopback_listener(taken, is_fixed=False) as second:
            assert second.getsockname()[1] != taken
        with (
            pytest.raises(BusyError, match=rf"port {taken} cannot be used \(Address already in use\)"),
            loopback_listener(taken, is_fixed=True),
        ):
            pass
    with loopback_listener(taken, is_fixed=True) as again:
        assert again.getsockname() == (LOOPBACK, taken)
