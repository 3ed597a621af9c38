"""Addresses of running services and of engines beside them, as options of commands take them."""

from __future__ import annotations

import httpx
import typer


def checked_server(url: str | None) -> str | None:
    """Callback of an option that takes one address."""
    if url is not None and not is_address(url):
        raise typer.BadParameter("is a URL: http://host:port")
    return url


def checked_servers(urls: list[str] | None) -> list[str] | None:
    """Callback of an option that takes several."""
    for url in urls or ():
        checked_server(url)
    return urls


def is_address(url: str) -> bool:
    """Of something that speaks HTTP."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return (
        parts.scheme in ("http", "https") and bool(parts.host) and (parts.port is None or parts.port < 65536)
    )
