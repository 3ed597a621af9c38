"""The end of a session whose link is gone: a socket of its own, for the engine's word that it is over."""

from __future__ import annotations

from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from bridges.circuit import Clock
from bridges.duplex_client import commands, decode
from bridges.duplex_client.address import session_url
from bridges.duplex_client.decode import Malformed, mapping
from bridges.duplex_client.link import LinkError, LinkOptions
from bridges.duplex_client.protocol import GONE, DuplexProtocol
from bridges.duplex_client.sockets import Dial, within


async def reap(
    options: LinkOptions, clock: Clock, dial: Dial, protocol: DuplexProtocol, reason: str
) -> tuple[bool, str | None]:
    """Take the session up once more, to close it. Within ``close_s``.

    :returns: whether the engine said that it is gone, and the token for another attempt
    """
    if protocol.session_id is None or protocol.token is None:
        return False, protocol.token
    attempt = _Reaping(protocol.session_id, protocol.token, protocol.sequence.seen, reason)
    url = session_url(options.url, options.model)
    by = clock.now() + options.close_s
    try:
        socket = await dial(url, options, clock, options.close_s)
    except LinkError:
        return False, protocol.token
    try:
        await within(clock, by - clock.now(), attempt.run(socket))
    except (TimeoutError, ConnectionClosed):
        pass
    finally:
        socket.transport.abort()
    return attempt.gone, attempt.token


class _Reaping:
    def __init__(self, session_id: str, token: str, seen: int, reason: str) -> None:
        self._session_id, self._seen, self._reason = session_id, seen, reason
        self.token: str | None = token
        self.gone = False

    async def run(self, socket: ClientConnection) -> None:
        assert self.token is not None
        await self._say(socket, commands.resume(self._session_id, self.token, self._seen))
        while not self.gone:
            try:
                event = mapping(orjson.loads(await socket.recv()))
            except orjson.JSONDecodeError:
                continue
            kind = event.get("type")
            if kind == "session.resumed":
                token = event.get("resume_token")
                self.token = token if isinstance(token, str) else None
                await self._say(socket, {"type": "session.close", "reason": self._reason})
            elif kind == "error":
                self.gone = self._expired(event)
            else:
                self.gone = kind in ("session.closed", "session.expired")

    def _expired(self, event: Any) -> bool:
        try:
            return decode.error(event).code in GONE
        except Malformed:
            return False

    async def _say(self, socket: ClientConnection, event: dict[str, Any]) -> None:
        await socket.send(orjson.dumps(event).decode())
