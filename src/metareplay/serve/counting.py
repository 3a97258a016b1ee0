"""The outermost layer: every response is counted, and none is stored or guessed at by browsers."""

from metareplay.serve.access import App, Message, Receive, Scope, Send
from metareplay.serve.service import Service

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
OTHER = "other"


class Counted:
    """Passes requests on."""

    def __init__(self, app: App, service: Service, paths: frozenset[str]) -> None:
        self.app, self.service, self.paths = app, service, paths | {"/", "/docs"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the status of a response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else OTHER

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.service.metrics.request(path, message["status"])
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self.app(scope, receive, counted)
