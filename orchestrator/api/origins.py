"""Where a request comes from, as browsers tell it: its ``Origin``, and the ``Host`` it was sent to.

A page may talk to Vigil when it was served under Vigil's own address or when its origin is on the list.
Programs send no origin. Without keys the address itself must be this machine's, or a page could have its own
name resolve to this machine and pass as served from here.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from orchestrator.wire.errors import Forbidden

ANY = "*"
_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_origin(text: str) -> bool:
    """As browsers write one: scheme and host, perhaps a port, nothing else."""
    scheme, slashes, rest = text.partition("://")
    return (
        text == text.lower()
        and scheme.isascii()
        and scheme.replace("-", "").isalpha()
        and bool(slashes)
        and not set(rest) & set("/?#@* ")
        and _address(text) is not None
    )


def check_origin(origin: str | None, host: str, allowed: Collection[str]) -> None:
    """:param host: the ``Host`` header
    :param allowed: origins such as ``https://app.example``; ``*``: any
    :raises Forbidden: ``origin_not_allowed``
    """
    if origin is None or origin in allowed or ANY in allowed:
        return
    parts = _address(origin)
    # A proxy that ends TLS changes the scheme and keeps the host; so schemes are not compared.
    if parts is not None and parts == _address(f"{urlsplit(origin).scheme}://{host}"):
        return
    raise Forbidden(
        f"pages of {origin[:200]} may not use this server; its operator can add them to auth.origins",
        code="origin_not_allowed",
    )


def check_local(host: str) -> None:
    """:raises Forbidden: ``host_not_allowed`` when ``Host`` names anything but this machine"""
    address = _address(f"http://{host}")
    if address is None or not is_loopback(address[0]):
        raise Forbidden(
            "a server without API keys is used under a name of this machine, such as 127.0.0.1",
            code="host_not_allowed",
        )


def _address(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None
