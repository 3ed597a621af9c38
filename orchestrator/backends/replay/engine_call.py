"""One streamed decision: the request goes out, deltas come in, visible text goes to ``show``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

from bridges.engine import ChatEngine, ChatEvent, ChatRequest, Delta, EngineBroken, Finished, ImageBytes
from orchestrator.backends.replay.answer import AnswerParser, Outcome
from orchestrator.backends.replay.decide import DecisionPoint, speak_score
from orchestrator.backends.replay.repeats import RepeatGuard
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.backends.replay.tags import Grammar


def stream_of(
    engine: ChatEngine, request: ChatRequest, images: ImageBytes
) -> AsyncGenerator[ChatEvent, None]:
    """The events of a request as a generator whose closing aborts it."""
    return cast("AsyncGenerator[ChatEvent, None]", engine.chat(request, images))


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. ``repeat``: its text was held back to the end, being a line spoken lately."""

    outcome: Outcome
    finished: Finished
    repeat: bool

    @property
    def cut(self) -> bool:
        """The engine ended it where it had as many tokens as it may have."""
        return self.finished.finish_reason == "length"


class EngineCall:
    """Reads one answer. ``delegating`` and ``score`` are valid from the first shown text on.

    :param prefix: assistant text that the engine continues
    :param repeats: folded lines that may not be said again
    :param offered: the prompt offers delegation
    :param muted: nothing is shown: the answer is a probe
    """

    def __init__(
        self,
        grammar: Grammar,
        limits: EngineLimits,
        *,
        standing_query: str | None,
        prefix: str,
        repeats: tuple[str, ...],
        ratio: float,
        offered: bool,
        muted: bool,
    ) -> None:
        self._grammar = grammar
        self._limits = limits
        self._muted = muted
        self._parser = AnswerParser(grammar, standing_query, prefix, offered=offered)
        self._guard = RepeatGuard(repeats, ratio)
        self._scorer = _Scorer(grammar, None if prefix else limits.decision)

    @property
    def delegating(self) -> bool:
        return self._parser.delegating

    @property
    def score(self) -> float | None:
        return self._scorer.score

    async def run(
        self,
        engine: ChatEngine,
        request: ChatRequest,
        images: ImageBytes,
        show: Callable[[str], Awaitable[None]],
    ) -> Reply:
        """Raises ``EngineError`` as the engine does; what was shown before stays shown."""
        finished: Finished | None = None
        async with aclosing(stream_of(engine, request, images)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    self._scorer.feed(event)
                    await self._show(self._guard.feed(self._parser.feed(event.text)), show)
                else:
                    finished = event
        if finished is None:
            raise EngineBroken("the answer has no end", "")
        stopped_by_silence = finished.stop_token_id is not None and (
            finished.stop_token_id == self._limits.silence_stop_id
        )
        rest = self._parser.feed(self._grammar.tags.silence) if stopped_by_silence else ""
        rest += self._parser.finish()
        shown = self._guard.feed(rest)
        repeat, held = self._guard.finish()
        await self._show(shown + held, show)
        return Reply(self._parser.outcome(), finished, repeat)

    async def _show(self, text: str, show: Callable[[str], Awaitable[None]]) -> None:
        if text and not self._muted:
            await show(text)


class _Scorer:
    """Finds the token at the decision point and reads its logprobs."""

    def __init__(self, grammar: Grammar, point: DecisionPoint | None) -> None:
        tags = grammar.tags
        pairs = zip(tags.silence, tags.response, strict=False)
        self._shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._point = point
        self._index = 0
        self._text = ""
        self.score: float | None = None

    def feed(self, delta: Delta) -> None:
        if self._point is None or self._index > self._point.index:
            return
        for top in delta.top_logprobs:
            if self._index == self._point.index:
                before = self._text + delta.text
                # Past shared tokens the score means something only if the answer began with them.
                if self._index == 0 or before.lstrip().startswith(self._shared):
                    self.score = speak_score(self._point, top)
            self._index += 1
        self._text += delta.text
