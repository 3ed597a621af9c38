"""Where an engine's sessions are, and how to get there."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bridges.duplex_client.link import LinkCode, LinkError

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_PORTS = {"ws": 80, "wss": 443}


def session_url(url: str, model: str) -> str:
    """The address with the query that lets our first message open the session.

    :raises LinkError: ``connect_failed``: this is no address of an engine
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise LinkError(LinkCode.CONNECT_FAILED, f"{url} is no engine's address: write ws://HOST:PORT")
    query = {**dict(parse_qsl(parts.query)), "duplex": "1", "autostart": "0"}
    query.setdefault("model", model)
    path = parts.path if parts.path not in {"", "/"} else "/v1/realtime"
    return urlunsplit(
        parts._replace(scheme=_SCHEMES[parts.scheme], path=path, query=urlencode(query), fragment="")
    )


def host_and_port(url: str) -> tuple[str, int]:
    """Of an address that ``session_url`` made."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]
