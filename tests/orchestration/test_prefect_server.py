"""The Prefect server that we start says when a refused request is worth another try."""

import asyncio
from typing import Any

from codline.orchestration.prefect_server import AGAIN, Hurried


def answered(statuses: list[tuple[str, int]]) -> list[float | None]:
    """Requests of these paths, answered so: after how many seconds each client is to try again."""
    waits: list[float | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": scope["status"], "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any: ...

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found = dict(message["headers"])
            assert found[b"content-length"] == b"0"
            waits.append(float(found[b"retry-after"]) if b"retry-after" in found else None)

    async def all_of_them() -> None:
        server = Hurried(app)
        for path, status in statuses:
            await server({"type": "http", "path": path, "status": status}, receive, send)

    asyncio.run(all_of_them())
    return waits


def test_a_request_that_is_refused_again_and_again_is_told_to_wait_longer_each_time() -> None:
    assert answered([("/slots", 503)] * 5) == [AGAIN, 4 * AGAIN, 16 * AGAIN, 64 * AGAIN, 256 * AGAIN]
    assert sum(wait or 0 for wait in answered([("/slots", 503)] * 5)) > 15  # Prefect's client gives up after five


def test_what_was_answered_is_forgotten_and_other_requests_are_counted_apart() -> None:
    assert answered([("/slots", 503), ("/logs", 503), ("/slots", 200), ("/slots", 503), ("/slots", 404)]) == [
        AGAIN,
        AGAIN,
        None,
        AGAIN,
        None,
    ]
