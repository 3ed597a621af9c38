"""What happened at the edges of one session, in order: what was shown and asked, whom it asked in turn, what
was answered, and every fact of its log. Written as it happens; with it the session can be done again.

One JSON object a line, ``t`` seconds after the first, ``what`` see ``What``. Requests are numbered by
``id``. A request's messages are told as the messages that it shares with the one of its kind before
(``shared``, from the first on) and the rest; ``digest`` is of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import orjson

from bridges.engine import Delta, EngineError, Finished
from evals.runs.moments import Pulse, Turnstile

What = Literal["frame", "kept", "query", "clear", "close", "fact", "want", "grant", "ask", "delta", "end"]
KEPT_LOGPROBS = 8
"""Tokens of an answer whose logprobs are kept: decisions are made at the first of them."""

Messages = Sequence[Mapping[str, Any]]


def digest_of(value: Any) -> str:
    """Of JSON-ready data, whatever the order of its keys; 32 hex digits."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


class Tape:
    """Writes one tape. Not for several sessions.

    :param now: monotonic seconds
    :param pulse: told of every line
    :param door: what comes in from outside enters there before it is written; ``None``: whoever lets it in
        has seen to its order
    """

    def __init__(
        self, path: Path, now: Callable[[], float], pulse: Pulse, door: Turnstile | None = None
    ) -> None:
        self._file = path.open("wb")
        self._now = now
        self._pulse = pulse
        self._door = door
        self._began = now()
        self._asked = 0
        self._wanted = 0
        self._last: dict[str, Messages] = {}

    async def enter(self) -> None:
        """To be awaited by whatever comes from outside, just before it is written and let on."""
        if self._door is not None:
            await self._door.enter()

    def wanted(self, kind: str) -> int:
        """The session asks for a permit. Returns its number."""
        self._wanted += 1
        self._write("want", id=self._wanted, kind=kind)
        return self._wanted

    def granted(self, wanted: int) -> None:
        self._write("grant", id=wanted)

    def frame(self, media_time_ms: int, sha256: str) -> None:
        """A frame is about to be shown; its bytes are kept by their digest."""
        self._write("frame", media_time_ms=media_time_ms, sha256=sha256)

    def kept(self, uuid: str) -> None:
        """A frame was looked at and kept; from here on it is the session's."""
        self._write("kept", uuid=uuid)

    def query(self, text: str | None) -> None:
        """The standing query is about to be set or replaced; ``None``: cleared."""
        if text is None:
            self._write("clear")
        else:
            self._write("query", text=text)

    def closes(self) -> None:
        """The session is about to be ended by whoever watches."""
        self._write("close")

    def fact(self, kind: str, data: Mapping[str, Any]) -> None:
        self._write("fact", kind=kind, data=data)

    def asked(self, purpose: str, messages: Messages, params: Mapping[str, Any]) -> int:
        """A request went out. Returns its number."""
        self._asked += 1
        kind = purpose.partition(" ")[0]
        last = self._last.get(kind, ())
        shared = _shared(last, messages)
        self._last[kind] = messages
        self._write(
            "ask",
            id=self._asked,
            purpose=purpose,
            shared=shared,
            messages=list(messages[shared:]),
            params=params,
            digest=digest_of(messages),
        )
        return self._asked

    def delta(self, asked: int, delta: Delta, before: int) -> None:
        """:param before: tokens with logprobs that the answer had so far"""
        tops = [dict(top) for top in delta.top_logprobs[: max(0, KEPT_LOGPROBS - before)]]
        self._write("delta", id=asked, text=delta.text, ids=delta.token_ids, tops=tops)

    def ended(self, asked: int, **how: Any) -> None:
        """``finished``, ``text``, ``alive`` or ``error``; nothing: it was given up by whoever asked."""
        self._write("end", id=asked, **how)

    def close(self) -> None:
        self._file.close()

    def _write(self, what: What, **data: Any) -> None:
        if self._file.closed:  # a session that was cut off may write its end later
            return
        self._pulse.beat()
        line = {"t": round(self._now() - self._began, 6), "what": what, **data}
        self._file.write(orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS) + b"\n")


def _shared(one: Messages, other: Messages) -> int:
    count = 0
    for before, now in zip(one, other, strict=False):
        if before != now:
            break
        count += 1
    return count


ERROR_EXTRAS = ("stage", "text", "limit", "uuid")


def error_data(error: EngineError) -> dict[str, Any]:
    extra = {name: getattr(error, name) for name in ERROR_EXTRAS if hasattr(error, name)}
    return {"type": type(error).__name__, "message": error.message, **extra}


def finished_data(finished: Finished) -> dict[str, Any]:
    return asdict(finished)
