"""Who may ask: the checks before a request is read. One ASGI middleware, so that nothing gets past it."""

import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from metareplay.serve.answers import as_json
from metareplay.serve.refusals import RequestError
from metareplay.serve.settings import ServeSettings, is_local

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/", "/health", "/docs", "/openapi.json"})
"""Pages and the health check; they reveal nothing about the model, and need no token."""
BODIES_AT_ONCE = 8
"""All bodies that are held at one time may have this many times the size of the largest."""


class Guard:
    """Checks host, origin and token, and bounds what is read of bodies."""

    def __init__(self, app: App, settings: ServeSettings) -> None:
        self.app, self.settings, self._held = app, settings, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check(scope["path"], headers)
        except RequestError as refusal:
            await send_refusal(send, refusal)
            return
        body = _Body(self, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self._held -= body.held

    def _check(self, path: str, headers: Mapping[str, str]) -> None:
        check_host(headers.get("host", ""), self.settings)
        check_origin(headers, self.settings)
        if path not in OPEN_PATHS:
            check_token(headers.get("authorization"), self.settings.token)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.settings.max_body:
            raise self.too_large()

    def too_large(self) -> RequestError:
        """For a body that is larger than allowed."""
        return RequestError(
            413, f"the body has more than {self.settings.max_body} bytes (--max-body); send it in several requests"
        )

    def hold(self, size: int, body: "_Body") -> None:
        """Count bytes of a body that are held in memory."""
        body.held += size
        self._held += size
        if body.held > self.settings.max_body:
            raise self.too_large()
        if self._held > BODIES_AT_ONCE * self.settings.max_body:
            raise RequestError(503, "too many large requests at once; try again in a second", {"Retry-After": "1"})


class _Body:
    """Counts what is received of one body."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self._guard, self._receive, self.held = guard, receive, 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._guard.hold(len(message.get("body", b"")), self)
        return message


def check_host(host: str, settings: ServeSettings) -> None:
    """On this machine's own addresses, refuse other names: a web page may have its name point here (DNS rebinding)."""
    if not settings.local:
        return
    name = _host_name(f"//{host}")
    if not (is_local(name) or name in {allowed.lower() for allowed in settings.allowed_hosts}):
        raise RequestError(
            421, f"the server does not answer for the host {name!r}; use localhost, or start it with --allow-host"
        )


def check_origin(headers: Mapping[str, str], settings: ServeSettings) -> None:
    """Refuse requests that the page of another site makes in its visitor's browser."""
    origin = headers.get("origin")
    if origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower():
        return
    if _host_name(origin) not in {allowed.lower() for allowed in settings.allowed_hosts}:
        raise RequestError(403, f"pages of {origin!r} may not use this server; open the server's own page")


@lru_cache(maxsize=64)  # every request of a client names the same
def _host_name(address: str) -> str:
    """The name in an address, in lower case; empty if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:  # brackets that are not closed
        return ""


def check_token(given: str | None, token: str | None) -> None:
    """Compare in constant time."""
    if token is None:
        return
    scheme, _, value = (given or "").partition(" ")
    right = hmac.compare_digest(value.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not right:
        what = "is missing" if given is None else "is not right"
        raise RequestError(
            401, f"the token {what}; send the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
        )


async def send_refusal(send: Send, refusal: RequestError) -> None:
    """A refusal as a whole response."""
    content = as_json({"error": str(refusal)})
    headers = {**refusal.headers, "Content-Type": "application/json", "Content-Length": str(len(content))}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*raw, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": content})
