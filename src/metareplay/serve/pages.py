"""The server's own pages: each is one file without anything from elsewhere."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _policy() -> str:
    """Nothing is loaded or sent but from and to this server, and only the page's own script runs."""
    script, style = _hash(_asset("page.js")), _hash(_asset("page.css"))
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def page_headers() -> dict[str, str]:
    """The headers of a page."""
    return {"Content-Security-Policy": _policy()}


def front_page() -> str:
    """The page at the root; its script asks the server for everything it shows."""
    style, script = f"<style>{_asset('page.css')}</style>", f"<script>{_asset('page.js')}</script>"
    return _asset("page.html").replace("<!-- style -->", style).replace("<!-- script -->", script)


def docs_page(schema: Mapping[str, Any]) -> str:
    """The API, from the OpenAPI description."""
    parts = [
        _operation(path, method, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>metareplay: API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_asset('page.css')}</style></head><body><header>"
        "<div class='brand'><a href='/'>the model's page</a></div>"
        f"<h1>API</h1><p class='lead'>{_inline(schema['info']['description'])}</p>"
        "<p class='note'>The same as OpenAPI: <a href='/openapi.json'>openapi.json</a>. With a token, send the header "
        "<code>Authorization: Bearer TOKEN</code>.</p></header>"
        f"<main class='docs'>{''.join(parts)}</main></body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><th><code>{escape(entry['name'])}</code></th><td>{escape(entry.get('description', ''))}</td></tr>"
        for entry in operation.get("parameters", ())
    ]
    parameters = f"<h3>Parameters</h3><table>{''.join(rows)}</table>" if rows else ""
    return (
        f"<section class='panel'><h2><span class='method {method}'>{method.upper()}</span> "
        f"<code>{escape(path)}</code></h2><p>{_inline(operation.get('description', ''))}</p>"
        f"{parameters}{_body(path, operation)}{_responses(operation)}</section>"
    )


def _body(path: str, operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return ""
    blocks = []
    for kind, entry in content.items():
        example = entry.get("example")
        text = "" if example is None else example if isinstance(example, str) else _dumped(example)
        blocks.append(f"<dt><code>{escape(kind)}</code></dt><dd>{f'<pre>{escape(text)}</pre>' if text else ''}</dd>")
    return f"<h3>Body</h3><dl>{''.join(blocks)}</dl>"


def _responses(operation: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><th>{escape(status)}</th><td>{escape(entry.get('description', ''))}</td></tr>"
        for status, entry in operation.get("responses", {}).items()
    ]
    return f"<details><summary>Answers</summary><table>{''.join(rows)}</table></details>"


def _dumped(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _inline(text: str) -> str:
    """Words between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
