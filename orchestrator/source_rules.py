"""What a client may have read: files of one folder, streams of listed hosts at addresses that are allowed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from orchestrator.wire.errors import Forbidden, InvalidRequest

STREAMS = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "srt"})

Resolve = Callable[[str], list[str]]
"""Addresses of a host, as text; raises ``OSError``. It may block."""


def resolve(host: str) -> list[str]:
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))


@dataclass(frozen=True, slots=True)
class SourceRules:
    """
    :param hosts: names, addresses and networks from which streams may be read; a name that leads to a
        private address is not enough: that address or its network is listed too
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
            if host not in self.hosts and not self._lists(host):
                raise _not_allowed(f"streams from {host} are not allowed (sources.allow_hosts)")
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
            if not (_is_public(address) or self._lists(address)):
                raise _not_allowed(f"{host} is an address of a private network (sources.allow_hosts)")
        if not addresses:
            raise OSError(f"{host} has no address")
        netloc = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        if parts.port is not None:
            netloc += f":{parts.port}"
        login, found, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{found}{netloc}"))

    def _lists(self, address: str) -> bool:
        """An address is listed, by itself or with its network."""
        parsed = _address(address)
        if parsed is None:
            return False
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
