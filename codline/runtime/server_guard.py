"""ASGI middleware for web servers on this machine: what a web page or another local user sends is refused."""

import secrets

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codline.runtime.loopback import LOOPBACK, OPEN


class ServerGuard:
    """Refuses requests and websockets that a page of another site can make a browser send.

    Host must name this server, or a page whose domain name is made to resolve to 127.0.0.1 could read everything (DNS
    rebinding). Origin, where a browser sends one, must be this server's own. No other site can frame its pages.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", b"frame-ancestors 'self'")
                message["headers"] = [*message.get("headers", []), policy]
            await send(message)

        refusal = None if scope["type"] == "lifespan" else self.refusal(Headers(scope=scope))
        await (refusal or self.app)(scope, receive, send_unframed)

    def refusal(self, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return PlainTextResponse("the Host header does not name this server", 421)
        if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
            return PlainTextResponse("requests from pages of other sites are refused", 403)
        return None


class TokenLogin:
    """Demands a cookie, which a browser is given at /open?token=TOKEN before it goes on to the page `landing`.

    The cookie's name has the port, because browsers send cookies to every port of a host.
    """

    def __init__(self, app: ASGIApp, port: int, token: str, landing: str) -> None:
        self.app = app
        self.cookie = f"codline-{port}"
        self.token = token
        self.landing = landing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app if scope["type"] == "lifespan" else self.answer(HTTPConnection(scope))
        await answer(scope, receive, send)

    def answer(self, request: HTTPConnection) -> ASGIApp:
        if request.scope["path"] == OPEN and self.is_token(request.query_params.get("token")):
            return self.entrance()
        if self.is_token(request.cookies.get(self.cookie)):
            return self.app
        return PlainTextResponse("open the address that `codline ui` has printed", 401)

    def entrance(self) -> Response:
        # A page rather than a redirect: after a link on another site, browsers keep back a strict cookie in redirects.
        page = HTMLResponse(f'<!doctype html><meta http-equiv="refresh" content="0; url={self.landing}">')
        page.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return page

    def is_token(self, word: str | None) -> bool:
        return word is not None and secrets.compare_digest(word.encode(), self.token.encode())
