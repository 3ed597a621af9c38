"""The prefix audit: what the engine's cache should have given each tick, against what it gave.

After a request of ``prompt`` tokens and ``generated`` ones the engine holds the keys of all but the last
token. The next request shares them if its bytes begin with the same plan and answer::

    expected = floor(min(next_prompt - 1, prompt + generated - 1) / block) * block

Where ``said`` replaced the generated text, only the prompt is shared. At a window's first tick the promise
is what was prewarmed. A failed tick promises nothing and takes nothing back.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.facts import AnyFact, EngineLost, Prewarmed, TickAnswered
from memory.fold import Memory
from memory.plan import AuditResult, Plan, Usage, WantPrewarm
from memory.render import PlanBytes, plan_bytes
from memory.tokens import usage_of

REMEMBERED = 4  # requests whose keys the engine may still hold
CLOSING_TOKENS = 8  # marks that end a message which later goes on


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes whose keys the engine should hold, and how many tokens they are."""

    window: int
    data: bytes
    tokens: int
    live: bool


class PrefixAudit:
    """Audit of one session. ``block_tokens``: the engine's prefix-cache block (0: nothing is promised)."""

    def __init__(self, block_tokens: int) -> None:
        self._block = block_tokens
        self._held: list[_Held] = []
        self.expected = 0
        self.cached = 0

    @property
    def ratio(self) -> float | None:
        """Cached over expected tokens of all audited ticks; ``None`` before anything was promised."""
        return self.cached / self.expected if self.expected else None

    def observe(self, memory: Memory, fact: AnyFact) -> AuditResult | None:
        """Follow a session: call it with each fact *before* ``memory`` applies it. A result for each
        answered tick that an engine served."""
        if isinstance(fact, TickAnswered) and memory.in_flight == fact.tick:
            usage = usage_of(fact.usage)
            if usage:
                return self.tick(
                    memory.plan(),
                    usage,
                    said=fact.said,
                    said_is_generated=fact.said_is_generated,
                    stays=not memory.instructed,
                )
        elif isinstance(fact, Prewarmed) and fact.ok and fact.prompt_tokens:
            for want in memory.wants():
                if isinstance(want, WantPrewarm) and _identity(want) == _identity(fact):
                    self.prewarmed(want.plan, fact.prompt_tokens)
        elif isinstance(fact, EngineLost):
            self.engine_lost()
        return None

    def tick(
        self, plan: Plan, usage: Usage, *, said: str, said_is_generated: bool, stays: bool = True
    ) -> AuditResult:
        """Judge one answered tick and remember what it leaves in the cache.

        :param stays: the next request begins with these bytes; not so after instructions for one reply alone
        """
        request = plan_bytes(plan)
        result = self._judge(plan.window, request, usage)
        if not stays:
            return result
        start = request.data[: len(request.data) - len((plan.continue_with or "").encode())]
        if said_is_generated:
            answered = start + said.encode("utf-8", "surrogatepass")
            self._hold(_Held(plan.window, answered, usage.prompt + usage.completion - 1, live=True))
        else:
            self._hold(_Held(plan.window, start, usage.prompt, live=True))
        return result

    def prewarmed(self, plan: Plan, prompt_tokens: int) -> None:
        """A prewarm request was answered."""
        shown = plan.turns or plan.open_turn
        tokens = prompt_tokens if shown else max(0, prompt_tokens - CLOSING_TOKENS)
        self._hold(_Held(plan.window, plan_bytes(plan).data, tokens, live=False))

    def engine_lost(self) -> None:
        """The cache is gone with the engine: nothing is promised until the next answer."""
        self._held.clear()

    def _hold(self, held: _Held) -> None:
        self._held = [h for h in self._held if h.live != held.live or h.window != held.window]
        self._held = [*self._held, held][-REMEMBERED:]

    def _judge(self, window: int, request: PlanBytes, usage: Usage) -> AuditResult:
        own = next((h for h in reversed(self._held) if h.live and h.window == window), None)
        differs = own is not None and not request.data.startswith(own.data)
        shared = [h.tokens for h in self._held if request.data.startswith(h.data)]
        if differs and own:
            shared.append(own.tokens)  # the prefix property promises it, whatever the bytes say
        expected = 0
        if self._block and shared:
            expected = min(usage.prompt - 1, max(shared)) // self._block * self._block
        if usage.cached is None:
            return AuditResult(expected, None)
        self.expected += expected
        self.cached += min(usage.cached, expected)
        if usage.cached >= expected:
            return AuditResult(expected, usage.cached)
        if not differs or own is None:
            return AuditResult(expected, usage.cached, "evicted")
        byte = common(own.data, request.data)
        segment = request.locate(byte)
        details: dict[str, int | str] = {"section": segment.section, "turn": segment.turn, "byte": byte}
        return AuditResult(expected, usage.cached, f"{segment.section}/{segment.turn}/{byte}", details)


def _identity(step: WantPrewarm | Prewarmed) -> tuple[int, int, int | None]:
    return step.head, step.turns, step.open_tick


def common(one: bytes, other: bytes) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
