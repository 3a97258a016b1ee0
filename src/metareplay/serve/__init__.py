"""A stored model over HTTP: predictions, facts and a page."""

from metareplay.serve.app import build_app
from metareplay.serve.server import serve
from metareplay.serve.settings import ServeSettings

__all__ = ["ServeSettings", "build_app", "serve"]
