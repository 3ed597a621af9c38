"""The engine's responses under our own fences: ids are mapped both ways, never leaked, never reused."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from bridges.duplex_client.link import Listening
from orchestrator.session.backend import Metrics
from orchestrator.session.fence import Fence

REMEMBERED = 256
"""Ended responses whose late events are still known for what they are."""
EARLY = 16
"""Figures kept of a response of which nothing was told yet."""
Key = tuple[int, str]
"""Generation of the pairing, and the engine's own id."""


@dataclass(slots=True)
class Bound:
    """One response of the engine.

    :param key: ``None`` for one that was asked for and that the engine has not begun
    :param forwarded: the engine was asked for it, so it may begin it at any time
    :param sealed: the engine has the whole of its turn: a listen is an answer to it, and to no earlier input
    :param spoken: the engine's detector sealed its turn, having heard speech: silence behind it is no answer
    :param visible: something of it was told
    :param listened: the model chose to listen in it, and nothing followed yet
    """

    fence: Fence
    key: Key | None = None
    asked: bool = False
    forwarded: bool = False
    sealed: bool = True
    spoken: bool = False
    visible: bool = False
    ended: bool = False
    listened: Listening | None = None
    samples: int = 0
    rate: int = 0
    text: str = ""
    marks: list[tuple[int, int]] = field(default_factory=list)
    silence_units: int = 0
    early: deque[Metrics] = field(default_factory=lambda: deque(maxlen=EARLY))
    """Figures that came before anything of it was told."""
    reported_ms: int = 0
    """What memory knows to be heard of it while it runs."""

    @property
    def audio_ms(self) -> int:
        return self.samples * 1000 // self.rate if self.rate else 0


class Responses:
    """Every response gets a turn of its own, newer than all before it."""

    def __init__(self) -> None:
        self.fence = Fence()
        """The newest that the session has told; its epoch is the current one."""
        self.generation = 0
        """Of the pairing whose events come now."""
        self._turn = -1
        self._known: OrderedDict[Key, Bound] = OrderedDict()
        self._asked: deque[Bound] = deque()
        self._by_fence: OrderedDict[Fence, Key] = OrderedDict()

    def learn(self, fence: Fence) -> None:
        """The session has got that far."""
        self.fence = max(self.fence, fence)

    @property
    def between(self) -> Fence:
        """Of what belongs to no response. Input of a turn may be here before the response to it is asked for:
        what the engine says of it is older than that response."""
        return Fence(self.fence.epoch, min(self.fence.turn, max(0, self._turn)))

    def ask(self, fence: Fence) -> Bound:
        """The session announced a response of that fence; the engine's next one is it."""
        self.learn(fence)
        self._turn = max(self._turn, fence.turn)
        bound = Bound(fence, asked=True)
        self._asked.append(bound)
        return bound

    def seal(self) -> None:
        """The engine said that a turn is committed."""
        waiting = next((bound for bound in self._asked if not bound.sealed), None)
        if waiting is not None:
            waiting.sealed = True

    def adopt(self, fence: Fence) -> bool:
        """The session announced a response that the engine began by itself; True if there is one."""
        self.learn(fence)
        self._turn = max(self._turn, fence.turn)
        for key, bound in reversed(self._known.items()):
            if key[0] == self.generation and not self.is_stale(bound) and not bound.asked:
                bound.asked = True
                self._name(fence, key)
                return True
        return False

    def of(self, response_id: str) -> Bound:
        """The response of that engine id, bound now if it is new."""
        key = (self.generation, response_id)
        if (known := self._known.get(key)) is not None:
            return known
        bound = self._asked.popleft() if self._asked else Bound(self._next_fence())
        bound.key = key
        self._known[key] = bound
        self._name(bound.fence, key)
        self._forget()
        return bound

    def find(self, response_id: str) -> Bound | None:
        return self._known.get((self.generation, response_id))

    @property
    def asked(self) -> Bound | None:
        """The oldest that was asked for and that the engine has not begun."""
        return self._asked[0] if self._asked else None

    def open(self) -> tuple[Bound, ...]:
        """Responses that are not over, oldest first; those that were asked for last."""
        return (*(each for each in self._known.values() if not each.ended), *self._asked)

    def is_stale(self, bound: Bound) -> bool:
        return bound.ended or bound.fence.is_stale(self.fence)

    def end(self, bound: Bound) -> None:
        bound.ended = True
        if bound in self._asked:
            self._asked.remove(bound)

    def by_fence(self, fence: Fence) -> Bound | None:
        key = self._by_fence.get(fence)
        return self._known.get(key) if key is not None else None

    def engine_id(self, fence: Fence) -> str | None:
        """The current engine's id of the response of that fence."""
        key = self._by_fence.get(fence)
        return key[1] if key is not None and key[0] == self.generation else None

    def begin(self, generation: int) -> None:
        """Events come from another engine session from here on; no old id can mean anything any more."""
        self.generation = generation
        self._asked.clear()
        for bound in self._known.values():
            bound.ended = True

    def statistics(self) -> dict[str, int]:
        return {"open": len(self.open()), "asked": len(self._asked), "known": len(self._known)}

    def _name(self, fence: Fence, key: Key) -> None:
        """One that is adopted has two fences: its own, and the session's."""
        self._by_fence[fence] = key
        if len(self._by_fence) > 2 * REMEMBERED:
            self._by_fence.popitem(last=False)

    def _next_fence(self) -> Fence:
        self._turn = max(self._turn + 1, self.fence.turn)
        return Fence(self.fence.epoch, self._turn)

    def _forget(self) -> None:
        while len(self._known) > REMEMBERED:
            key = next((k for k, bound in self._known.items() if bound.ended), next(iter(self._known)))
            bound = self._known.pop(key)
            self._by_fence.pop(bound.fence, None)
