"""How a model is served: where, to whom, and within which limits."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from metareplay.errors import ConfigError

MEBIBYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Everything that can be set; each limit is named in the answer to a request that breaks it."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    """What clients must send as ``Authorization: Bearer ...``; None: nothing."""
    writable: bool | None = None
    """Whether tasks can be added; None: only on this machine's own addresses."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which clients may reach a server on this machine's own addresses."""
    max_body: int = 16 * MEBIBYTE
    """Maximum number of bytes in one request."""
    max_rows: int = 10_000
    """Maximum number of inputs in one request."""
    max_pixels: int = 25_000_000
    """Pixels of one image before it is decoded."""
    timeout: float = 60.0
    """Seconds that one request may take."""
    queue: int = 256
    """Requests that may wait for the model."""
    batch: int = 2_048
    """Inputs that are predicted at once."""
    watch: float = 1.0
    """Seconds between two looks at the model's folder."""
    pixel_max: float | None = None
    """The value of full brightness in inputs of a model that did not learn from image files."""
    log: str | Path | None = None
    log_inputs: bool = False
    inference: Mapping[str, Any] = field(default_factory=dict)
    """Settings of inference that replace those of the model."""

    def __post_init__(self) -> None:
        limits = ("max_body", "max_rows", "max_pixels", "timeout", "queue", "batch", "watch")
        if wrong := [name for name in limits if getattr(self, name) <= 0]:
            raise ConfigError(f"--{wrong[0].replace('_', '-')} must be more than 0, got {getattr(self, wrong[0])}")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be between 0 (any free port) and 65535, got {self.port}")
        if self.writable and self.token is None and not self.local:
            raise ConfigError(
                f"--writable on {self.host} lets everyone who reaches it change the model; set a token with "
                "--token-file or METAREPLAY_TOKEN, or serve on 127.0.0.1"
            )

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_local(self.host)

    @property
    def read_only(self) -> bool:
        """Whether the model stays as it is."""
        return not (self.local if self.writable is None else self.writable)


@lru_cache(maxsize=256)
def is_local(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(path: Path | None, environment: Mapping[str, str]) -> str | None:
    """The token in a file, or in METAREPLAY_TOKEN; None if neither is given."""
    if path is None:
        token = environment.get("METAREPLAY_TOKEN")
        source = "METAREPLAY_TOKEN"
    else:
        try:
            token, source = path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {path} cannot be read: {error}") from error
    if token is None:
        return None
    token = token.strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token in {source} must have at least 16 ASCII characters and no spaces; make one with: "
            'python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return token
