"""Another engine that writes summaries and long-term blocks: an OpenAI-compatible chat endpoint.

It may be a larger model, or a small one that takes texts alone. It is judged by its own answers: while it
can't be reached or has stopped answering it is not asked, and what it does never counts for or against the
engine that serves the sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.chat_endpoint import split_url, text_of
from bridges.circuit import Circuit, Clock, EngineState, RealClock
from bridges.engine import (
    Deadlines,
    EngineError,
    EngineRefused,
    EngineServerError,
    EngineUnreachable,
    ImageBytes,
)
from bridges.image_ledger import render
from bridges.text_engine import TextEngine

_CONNECT_S = 5.0
_REST_FIRST_S = 1.0
_REST_MAX_S = 60.0
_STANDARD = frozenset({"temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty"})
"""Sampling that every such endpoint knows; a model's own extras stay with its own engine."""


@dataclass(frozen=True, slots=True)
class Written:
    """A text as it came. ``finish_reason``: ``length`` when it was cut off."""

    text: str
    finish_reason: str


class ChatSummarizer:
    """Shared by all sessions.

    :param url: see ``chat_endpoint.split_url``
    :param images: it takes pictures
    :param deadline_s: of one text, waiting for a free place included
    :param max_in_flight: requests at a time; others wait inside their deadlines
    :param params: sent with each request as they are, over the sampling that is asked for
    """

    def __init__(
        self,
        url: str,
        model: str,
        params: Mapping[str, Any],
        *,
        api_key: str | None = None,
        images: bool = True,
        deadline_s: float = 60.0,
        max_in_flight: int = 2,
        clock: Clock | None = None,
    ) -> None:
        self.images = images
        self._model = model
        self._params = params
        self._clock = clock or RealClock()
        self._circuit = Circuit(self._clock)
        self._rest_s = _REST_FIRST_S
        self._rests_until = 0.0
        self._places = max_in_flight
        self._in_work = 0
        self._counts = {"written": 0, "failed": 0, "cancelled": 0}
        root, path = split_url(url)
        self._chat = TextEngine(
            root,
            path=path,
            api_key=api_key,
            deadlines=Deadlines(deadline_s, deadline_s),
            connect_s=_CONNECT_S,
            max_connections=max_in_flight,
            clock=self._clock,
        )

    @property
    def state(self) -> EngineState:
        return self._circuit.state

    @property
    def ready(self) -> bool:
        """It may be asked: it answers, or has rested long enough to be tried again."""
        return self._clock.now() >= self._rests_until

    async def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> Written:
        """One text. Cancelling it closes the request. Raises ``EngineError``.

        :param messages: OpenAI messages; pictures by uuid, whose bytes ``images`` gives
        """
        self._in_work += 1
        outcome = "cancelled"
        started_at = self._clock.now()
        try:
            reply = await self._chat.complete(self._body(messages, sampling, max_tokens, images))
            written = _written(reply)
            outcome = "written"
        except EngineError as error:
            outcome = "failed"
            self._failed(error, started_at)
            raise
        finally:
            self._in_work -= 1
            self._counts[outcome] += 1
        self._circuit.answered()
        self._rest_s = _REST_FIRST_S
        return written

    def statistics(self) -> dict[str, int]:
        waiting = max(0, self._in_work - self._places)
        return {"in_flight": self._in_work - waiting, "waiting": waiting, **self._counts}

    async def aclose(self) -> None:
        await self._chat.aclose()

    def _body(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> dict[str, Any]:
        asked = {name: value for name, value in sampling.items() if name in _STANDARD}
        return {
            **asked,
            "max_tokens": max_tokens,
            **self._params,
            "model": self._model,
            "messages": render(messages, images, None, with_uuid=False).messages,
            "stream": False,
        }

    def _failed(self, error: EngineError, started_at: float) -> None:
        if isinstance(error, EngineRefused):
            self._circuit.answered()
        elif isinstance(error, EngineUnreachable):
            self._circuit.lost()
        else:
            self._circuit.missed(started_at)
        if self.state in (EngineState.DOWN, EngineState.WEDGED) and self.ready:
            self._rests_until = self._clock.now() + self._rest_s
            self._rest_s = min(_REST_MAX_S, 2 * self._rest_s)


def _written(reply: Mapping[str, Any]) -> Written:
    try:
        text = text_of(reply)
        finish = reply["choices"][0].get("finish_reason")
    except (ValueError, AttributeError) as wrong:
        raise EngineServerError(f"the summarizer's answer can't be read: {wrong}") from None
    return Written(text, str(finish or "stop"))
