"""The decision policy, pure: when a tick fires, whether the engine is asked, and what its answer may do.

``DecisionPolicy`` is a fold over the session's facts, so it survives a restart with the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from bridges.engine import Deadlines
from memory.facts import AnyFact, MemoryOpened, PackSet, PersonaSet, QuerySet, TickAnswered
from orchestrator.backends.replay.answer import Outcome, canonical
from orchestrator.backends.replay.repeats import SpokenLines
from orchestrator.backends.replay.tags import Grammar
from orchestrator.session.backend import MAX_OUTPUT_TOKENS, Action
from prompts.pack import Pack


class Reason(StrEnum):
    """Why a silence is silent, or an answer not whole."""

    GATED = "gated"
    MODEL = "model"
    DEDUPLICATED = "deduplicated"
    UNHEALTHY = "unhealthy"
    ENGINE_LATE = "engine_late"
    CUT = MAX_OUTPUT_TOKENS  # the engine ended the answer where it had as many tokens as it may have
    NOT_ASKED = "not_asked"  # turn mode: frames are recorded, nobody asked for words


class Ask(StrEnum):
    """What a due tick does: ask the engine, ask it without speaking (probe), or record silence."""

    ENGINE = "engine"
    PROBE = "probe"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class DecideOptions:
    """Levers of the decision.

    :param gate: silent until the first query (personas that watch are never gated)
    :param dedup_ratio: likeness from which a line counts as a repeat; 1.0: equal but for case and spaces
    :param dedup_rearm_s: media seconds after which a line may be spoken again; 0: no dedup
    :param unhealthy_limit: unhealthy answers in a row that stop speech
    :param probe_every: while stopped, one tick in so many asks the engine again
    :param recover_after: healthy probes in a row that let the session speak again
    :param threshold: speak when P(response) against P(silence) is above it; ``None``: the model's sampling
    """

    gate: bool = True
    dedup_ratio: float = 1.0
    dedup_rearm_s: float = 60.0
    unhealthy_limit: int = 5
    probe_every: int = 10
    recover_after: int = 2
    threshold: float | None = None


class DecisionPolicy:
    """Gate, dedup and breaker of one session, folded from its facts."""

    def __init__(self, pack: Pack, options: DecideOptions) -> None:
        self._pack = pack
        self._options = options
        self._gated = options.gate
        self.lines = SpokenLines(options.dedup_rearm_s)
        self._unhealthy = 0
        self._healthy = 0
        self._silent_ticks = 0
        self.stopped = False

    def apply(self, fact: AnyFact) -> None:
        match fact:
            case MemoryOpened(persona=persona) | PersonaSet(persona=persona) | PackSet(persona=persona):
                if persona in self._pack.watch_personas:
                    self._gated = False
            case QuerySet():
                self._gated = False
                self._silent_ticks = self._options.probe_every  # a person waits: probe at once
            case TickAnswered():
                self._answered(fact)
            case _:
                pass

    def _answered(self, fact: TickAnswered) -> None:
        if fact.text:
            self.lines.spoken(fact.text, fact.media_time_ms)
        metrics = fact.metrics or {}
        if metrics.get("genuine_silence"):
            self.lines.silence()
        healthy = metrics.get("healthy")
        if healthy is None:  # the engine was not asked, or its answer had no chance to show a tag
            self._silent_ticks += 1
            return
        self._silent_ticks = 0
        self._unhealthy = 0 if healthy else self._unhealthy + 1
        self._healthy = self._healthy + 1 if healthy else 0
        if self.stopped:
            self.stopped = self._healthy < self._options.recover_after
        else:
            self.stopped = self._unhealthy >= self._options.unhealthy_limit

    @property
    def gated(self) -> bool:
        return self._gated

    def ask(self, *, words: bool, auto: bool) -> tuple[Ask, Reason | None]:
        """What the next tick does, and why it is silent if nobody is asked."""
        if self._gated and not words:
            return Ask.NOBODY, Reason.GATED
        if not auto and not words:
            return Ask.NOBODY, Reason.NOT_ASKED
        if not self.stopped:
            return Ask.ENGINE, None
        recovering = self._healthy > 0
        if recovering or words or self._silent_ticks + 1 >= self._options.probe_every:
            return Ask.PROBE, Reason.UNHEALTHY
        return Ask.NOBODY, Reason.UNHEALTHY


# --- pace -----------------------------------------------------------------------------------------


class Pace:
    """When the next tick may start, of a session whose frames nobody waits for.

    Appends that are a period apart in media time come at a pace of their own: each begins a tick as it comes.
    It is as fresh then as it will ever be, and where it would meet others the engine's permits say who goes
    first; to hold it back for the sake of a phase would only make it older. Appends that are closer than
    that ride together, and Vigil says when: once a period, at the session's phase. A tenth of a period of
    jitter is forgiven.

    :param turn_after: the first moment of the session's phase that is not before another one, at a period in
        s; ``None``: it has none, and ticks begin a period after the last
    """

    def __init__(self, period_ms: int, turn_after: Callable[[float, float], float | None]) -> None:
        self._turn_after = turn_after
        self._period_s = period_ms / 1000
        self._media_step_ms = period_ms * 9 // 10
        self._started: float | None = None
        self._media_ms = 0

    def started(self, now: float, media_time_ms: int) -> None:
        self._started, self._media_ms = now, media_time_ms

    def passed_over(self, media_time_ms: int) -> bool:
        """A tick up to here leaves no room for one that should have been between it and the last."""
        return self._started is not None and media_time_ms - self._media_ms >= 1.5 * self._period_s * 1000

    def wait_s(self, now: float, newest_ms: int, before_ms: int | None) -> float:
        """Seconds until a tick may start.

        :param newest_ms: media time of the newest frame that waits; ``before_ms``: of the newest that waits
            and came with another append
        """
        step_ms = newest_ms - (self._media_ms if before_ms is None else before_ms)
        if self._started is None or step_ms >= self._media_step_ms:
            return 0.0
        return max(0.0, self._due(self._started) - now)

    def _due(self, started: float) -> float:
        """The phase's next moment that is half a period away, so that a late tick delays none after it."""
        turn = self._turn_after(started + self._period_s / 2, self._period_s)
        return started + self._period_s if turn is None else turn


def tick_deadlines(period_ms: int, max_tokens: int, *, waited_for: bool = False) -> Deadlines:
    """First token: three periods, at least 3 s. Whole answer: 10 s and 50 ms a token.

    :param waited_for: the source of the frames waits for the answer (a file): only an engine that hangs is
        late, since what it decides about a second must not depend on what else the machine does
    """
    if waited_for:
        return Deadlines(first_token_s=60.0, total_s=120 + 0.5 * max_tokens)
    return Deadlines(first_token_s=max(3 * period_ms / 1000, 3.0), total_s=10 + 0.05 * max_tokens)


# --- score and threshold ---------------------------------------------------------------------------


class ThresholdRefused(ValueError):
    """A threshold cannot be applied to this model; the message says why."""


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """Where a model's answer splits into speech and silence.

    :param index: position of the first token at which the tags differ
    :param response: token id of speech there; ``silence``: of silence
    """

    index: int
    response: int
    silence: int


def speak_score(point: DecisionPoint, top: Mapping[int, float]) -> float | None:
    """P(response) / (P(response) + P(silence)) from raw logprobs at the decision point.

    A tag that is not among ``top`` counts 0; ``None`` when neither is.
    """
    speech = math.exp(top[point.response]) if point.response in top else 0.0
    silence = math.exp(top[point.silence]) if point.silence in top else 0.0
    return speech / (speech + silence) if speech + silence > 0 else None


def threshold_bias(point: DecisionPoint | None, threshold: float) -> float:
    """The logit bias on the response token that makes a greedy decision speak above ``threshold``.

    Raises ``ThresholdRefused`` where no single bias can: the decision point is unknown, or the tags share
    their first token, so that the biased token is not where the answer begins.
    """
    if not 0 < threshold < 1:
        raise ThresholdRefused(f"a speak threshold lies between 0 and 1, not {threshold}")
    if point is None:
        raise ThresholdRefused("this engine's self-check found no decision point; remove the threshold")
    if point.index > 0:
        raise ThresholdRefused(
            f"the model's tags share their first {point.index} token(s), so a bias cannot act on the "
            "decision alone; remove the threshold or serve a model with single-token tags"
        )
    return math.log((1 - threshold) / threshold)


# --- what an answer may do ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the client receives of one answer, and what the window keeps of it."""

    action: Action
    reason: Reason | None
    text: str
    question: str | None
    said: str
    said_is_generated: bool

    @property
    def cut(self) -> bool:
        """There was more to say than the answer had tokens for."""
        return self.reason is Reason.CUT

    @property
    def status(self) -> Literal["completed", "incomplete"]:
        """Of the answer."""
        return "incomplete" if self.cut else "completed"


def judge(grammar: Grammar, outcome: Outcome, *, repeat: bool, muted: bool, cut: bool = False) -> Verdict:
    """Apply dedup and breaker. ``said`` is the answer byte for byte if the client received just that.

    :param repeat: the text is a line spoken lately
    :param muted: speech is stopped; the answer is only a probe
    :param cut: the answer ended at its limit of tokens; one without a tag says nothing of the model then
    """
    action, text, question = outcome.action, outcome.text, outcome.question
    reason = Reason.CUT if cut and not outcome.genuine_silence else None
    if muted or not outcome.healthy:
        action, text, question = Action.SILENCE, "", None
        reason = Reason.UNHEALTHY if muted else reason or Reason.UNHEALTHY
    elif action is Action.SILENCE:
        reason = reason or Reason.MODEL
    elif repeat and action is Action.RESPONSE:
        action, text, reason = Action.SILENCE, "", Reason.DEDUPLICATED
    elif repeat:  # the question is new or merges; its note was heard already
        text = ""
    as_generated = outcome.parses and (action, text) == (outcome.action, outcome.text)
    said = outcome.raw if as_generated else canonical(grammar, action, text, question)
    return Verdict(action, reason, text, question, said, as_generated)
