"""Addresses of engines, as operators give them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_ADDRESS = re.compile(r"(?:https?|wss?)://[^/\s?#@,]+(?:/[^\s?#,]*)?")
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def checked(url: str) -> str:
    """Names of engines, which everybody may read in the figures, are made of it.

    :raises ValueError: it is none, or holds a user's name or password
    """
    try:
        host, port = _place(url) if _ADDRESS.fullmatch(url) else ("", 0)
    except ValueError:
        host, port = "", 0
    if not host or not 0 < port < 65536:
        raise ValueError(
            f"an engine's address is written as http://host:port, without a user's name (its key is "
            f"engine_api_key) and without a query, not {url.rpartition('@')[2]}"
        )
    return url


def twin(url: str, others: Iterable[str]) -> str | None:
    """Of other engines' addresses one that leads to this engine, as far as that can be told.

    Asks the resolver. Two names of hosts may be two engines behind one address; a name and the address itself
    are one.
    """
    host, port = _place(url)
    for other in others:
        known, known_port = _place(other)
        if port != known_port:
            continue
        if host == known or (
            (_is_plain(host) or _is_plain(known)) and _addresses(host, port) & _addresses(known, port)
        ):
            return other
    return None


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    port = parts.port
    return parts.hostname or "", _PORTS[parts.scheme] if port is None else port


def _is_plain(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        socket.inet_aton(host)
    except OSError:
        return ":" in host
    return True


def _addresses(host: str, port: int) -> set[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {_unmapped(str(entry[4][0])) for entry in found}


def _unmapped(address: str) -> str:
    try:
        mapped = getattr(ipaddress.ip_address(address.partition("%")[0]), "ipv4_mapped", None)
    except ValueError:
        return address
    return str(mapped or address)
