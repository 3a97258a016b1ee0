"""A server process: one socket, one event loop, until it is stopped."""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from metareplay.errors import ConfigError
from metareplay.serve.app import build_app
from metareplay.serve.settings import ServeSettings

BACKLOG = 1024
"""Connections that may wait to be accepted."""
GRACE = 5
"""Seconds that requests have left to end when the server is stopped."""


def serve(folder: Path, settings: ServeSettings, announce: Callable[[str], None]) -> None:
    """Serve the model in a folder until Ctrl-C; ``announce`` is told the address once the model is loaded."""
    with bound_socket(settings) as bound:
        app = build_app(folder, settings)
        bound.listen(BACKLOG)  # who reads the address may connect at once
        announce(address(bound))
        with suppress(KeyboardInterrupt):  # stopped on purpose
            make_server(app).run(sockets=[bound])


def make_server(app: object) -> uvicorn.Server:
    """A server that prints nothing but its own faults."""
    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="none",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE,
        )
    )


def bound_socket(settings: ServeSettings) -> socket.socket:
    """The socket to listen on; an address in use is refused before the model is loaded."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}; choose another --port "
            "(0: any free one) or --host"
        ) from error
    return bound


def address(bound: socket.socket) -> str:
    """The address of a socket as a browser wants it."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
