"""What a client may have read: files of one folder, streams of listed hosts at addresses that are allowed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from orchestrator.wire.errors import Forbidden, InvalidRequest

STREAMS = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "srt", "http", "https"})
_WEB = {"http": 80, "https": 443}
"""Ports of a listed host from which files and streams may be fetched; others are listed with it."""

Resolve = Callable[[str], list[str]]
"""Addresses of a host, as text; raises ``OSError``. It may block."""


def resolve(host: str) -> list[str]:
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))


@dataclass(frozen=True, slots=True)
class SourceRules:
    """
    :param hosts: names, addresses and networks from which streams may be read, or one of them and a port
        (``host:port``); a name that leads to a private address is not enough: that address or its network is
        listed too. HTTP is asked at its own ports alone, others are listed so
    :param folder: below which files may be; without both there are no sources
    """

    hosts: frozenset[str] = frozenset()
    folder: Path | None = None
    resolve: Resolve = resolve

    def location(self, wanted: str) -> str:
        """What to open. Raises ``Forbidden`` (``source_not_allowed``) or ``InvalidRequest``."""
        parts = _split(wanted)
        if parts.scheme:
            if parts.scheme not in STREAMS:
                known = ", ".join(sorted(STREAMS))
                raise InvalidRequest(f"a stream is one of {known}; a file has no scheme", param="source")
            host = (parts.hostname or "").lower()
            if f"{host}:{parts.port}" in self.hosts:
                return wanted
            if host not in self.hosts and not self._lists(host):
                raise _not_allowed(f"streams from {host} are not allowed (sources.allow_hosts)")
            if parts.port not in (None, _WEB.get(parts.scheme, parts.port)):
                raise _not_allowed(f"port {parts.port} of {host} is not allowed (sources.allow_hosts)")
            return wanted
        if self.folder is None:
            raise _not_allowed("files are not allowed (sources.folder)")
        root = self.folder.resolve()
        path = (root / wanted).resolve()
        if not path.is_relative_to(root) or not (path.is_file() or path.is_dir()):
            raise _not_allowed(f"there is no {wanted} in the folder of sources")
        return str(path)

    def address(self, url: str) -> str:
        """The stream's URL with one checked address in place of its host, so that a second answer of the name
        server leads nowhere else. Blocks; raises ``Forbidden`` or ``OSError``."""
        parts = _split(url)
        host = (parts.hostname or "").lower()
        if _address(host) is not None:
            return url
        addresses = self.resolve(host)
        for address in addresses:
            if not (_is_public(address) or self._lists(address, parts.port)):
                raise _not_allowed(f"{host} is an address of a private network (sources.allow_hosts)")
        if not addresses:
            raise OSError(f"{host} has no address")
        netloc = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        if parts.port is not None:
            netloc += f":{parts.port}"
        login, found, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{found}{netloc}"))

    def _lists(self, address: str, port: int | None = None) -> bool:
        """An address is listed, by itself, with its network, or with that port."""
        parsed = _address(address)
        if parsed is None:
            return False
        if port is not None and f"{address}:{port}" in self.hosts:
            return True
        for listed in self.hosts:
            try:
                if parsed in ipaddress.ip_network(listed):
                    return True
            except ValueError:
                continue  # a name
        return False


def _split(url: str) -> SplitResult:
    try:
        if "\0" in url:
            raise ValueError
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError:
        raise InvalidRequest("the source is no file name and no URL", param="source") from None
    return parts


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _is_public(address: str) -> bool:
    parsed = _address(address)
    return parsed is not None and parsed.is_global and not parsed.is_multicast


def _not_allowed(message: str) -> Forbidden:
    return Forbidden(message, code="source_not_allowed", param="source")
