"""``Rollover``: when a session leaves its engine session for a fresh one. Sans-IO.

::

    steady --context fills, at a turn boundary--> opening --> warming --> ready --next boundary--> switching
                                                     `-- refused: rest, try again

The caller feeds in what happened, asks ``wants`` after each and when ``next_at`` has come, carries each
want out once and reports how it ended. Every engine session has a generation; reports on one that is not
awaited any more are ignored.

Where no second place is to be had, the old session is closed first: ``CloseOld``, then ``OpenFresh``, and
``Switch`` says how long nobody listened. The same way leads back after an engine was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memory.tokens import estimate
from orchestrator.backends.native.horizon import Context
from prompts.native import Horizon, Seed


class Seeds(Protocol):
    """What the conversation is remembered as."""

    @property
    def revision(self) -> int:
        """Grows with every turn that was heard; a seed made before lacks it."""

    def seed(self) -> str:
        """At most ``seed_max_tokens``, the last heard turn in it."""


# --- wants: each is given once --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenFresh:
    """Take a place (``rollover=True``) and open an engine session with this seed; ends with
    ``fresh_opened`` or ``fresh_failed``."""

    generation: int
    seed: str


@dataclass(frozen=True, slots=True)
class Warm:
    """Let it read its seed, with a silent unit for instance, and drop what it says; ends with
    ``fresh_warm`` or ``fresh_failed``."""

    generation: int


@dataclass(frozen=True, slots=True)
class CloseFresh:
    """It is not needed: its seed is out of date, or the session ends; ends with ``fresh_closed``."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Switch:
    """From the next unit on the fresh session is the engine session; ends with ``switched``.

    :param end_response: status to end the open response with, ``None`` where none is open
    :param gap_ms: how long there was no engine session, 0 where the old one is still there
    :param forced: there was no boundary to wait for
    """

    generation: int
    end_response: str | None = None
    gap_ms: int = 0
    forced: bool = False


@dataclass(frozen=True, slots=True)
class CloseOld:
    """Close the engine session of this generation; ends with ``old_closed`` when it is gone, or given up.

    :param reason: ``rolled_over``; ``make_room``: it is the current one, and input waits for the next
    :param end_response: as for ``Switch``
    """

    generation: int
    reason: str
    end_response: str | None = None


@dataclass(frozen=True, slots=True)
class EndClearly:
    """The session can't go on. ``code``: ``context_exhausted``, ``engine_lost`` or ``rollover_failed``."""

    code: str
    message: str


Want = OpenFresh | Warm | CloseFresh | Switch | CloseOld | EndClearly


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds.

    :param heard: after a response's end, for the word that it was heard to its end
    :param silence: that counts as a boundary at first, for models whose turns have no ends; it shrinks to
        one unit as the context fills
    :param rest_first: after a refusal, then doubled up to ``rest_max``
    :param without: the session may be without an engine session
    """

    heard: float = 8.0
    silence: float = 2.0
    rest_first: float = 0.5
    rest_max: float = 15.0
    without: float = 60.0


class Phase(StrEnum):
    STEADY = "steady"
    OPENING = "opening"
    WARMING = "warming"
    READY = "ready"
    SWITCHING = "switching"
    DROPPING = "dropping"
    """A fresh session with a seed out of date is being closed."""
    CLEARING = "clearing"
    """The current session is being closed to make room."""
    ENDED = "ended"


UNDECIDED = 3
"""With more units without a decision the model does not decide on each, and none is waited for."""
REFRESHES = 3
"""Fresh sessions given up in one rollover because talk went on after their seed."""


class Rollover:
    """One session's. Times are monotonic seconds.

    :param spare: a fresh session can be open beside the old one
    :param unlimited: the engine's own window slides (``horizon.slides``)
    :param seed: the text that the first session was opened with
    """

    def __init__(
        self,
        horizon: Horizon,
        seeds: Seeds,
        *,
        unit_ms: int,
        spare: bool,
        unlimited: bool = False,
        seed: str | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._horizon = horizon
        self._seeds = seeds
        self._unit_ms = unit_ms
        self._spare = spare
        self._unlimited = unlimited
        self._waits = waits or Waits()
        self.context = self._context(seed)
        if self.context.limit is not None and horizon.seed is not Seed.NONE:
            start = horizon.prefix_tokens + horizon.seed_max_tokens
            if start + self.context.cost(unit_ms, 1) > self.context.force_at:
                raise ValueError(f"a seed of {horizon.seed_max_tokens} tokens leaves no room to talk in")
        self.phase = Phase.STEADY
        self.generation = 0
        """Of the current engine session."""
        self.switches = 0
        self._opened = 0
        self._fresh: Context | None = None
        self._seed_revision = 0
        self._talked = False
        """Someone has spoken since the last seed was made."""
        self._refreshes = 0
        self._failures = 0
        self._rest_until = 0.0
        self._closing: int | None = None
        self._gone_at: float | None = None
        self._gone_code = "engine_lost"
        self._held_at: float | None = None
        self._response = False
        self._unheard_at: float | None = None
        self._user_speaks = False
        self._model_speaks = False
        self._quiet_at: float | None = None
        self._undecided = 0
        self._out: list[Want] = []

    # --- what happened --------------------------------------------------------------------------------

    def unit(self, now: float, audio_ms: int, frame_groups: int = 0) -> None:
        """An append was written to the current session, or its engine fed itself that much silence."""
        if self._quiet_at is None and not self._speech:
            self._quiet_at = now
        self.context.unit(audio_ms, frame_groups)

    def undecided(self, units: int) -> None:
        """Units that the model has yet to decide on, where it decides on each: it may still answer them."""
        self._undecided = units

    def output(self, text: str = "", tokens: int = 0) -> None:
        """The current session said something: its text, or the tokens that the engine counted for it."""
        self.context.output(tokens or estimate(text))

    def counted(self, tokens: int) -> None:
        """The engine's own count of the current session's whole context."""
        self.context.counted(tokens)

    def response_opened(self) -> None:
        self._response = self._talked = True
        self._unheard_at = None

    def response_closed(self, now: float, *, playing: bool) -> None:
        """The model's turn is over. ``playing``: more of it will be heard, and then told by ``heard``."""
        self._response = False
        self._unheard_at = now if playing else None

    def heard(self) -> None:
        """The last response was heard to its end, or nothing more of it will be heard."""
        self._unheard_at = None

    def speech(self, now: float, *, user: bool | None = None, model: bool | None = None) -> None:
        """Who speaks now; ``None``: as before."""
        self._user_speaks = self._user_speaks if user is None else user
        self._model_speaks = self._model_speaks if model is None else model
        if self._speech:
            self._quiet_at, self._talked = None, True
        elif self._quiet_at is None:
            self._quiet_at = now

    def lost(self, now: float) -> None:
        """The current engine session is gone and was not taken up again; its response was ended."""
        if self._gone_at is None and self.phase not in (Phase.CLEARING, Phase.ENDED):
            self._response = False
            self._held_at = now
            self._gone(now, "engine_lost")

    def fresh_opened(self, generation: int) -> None:
        if self._awaited(generation, Phase.OPENING):
            self.phase = Phase.WARMING
            self._out.append(Warm(generation))

    def fresh_warm(self, generation: int, audio_ms: int = 0) -> None:
        """It has read its seed; ``audio_ms``: that it was fed for it."""
        if self._awaited(generation, Phase.WARMING) and self._fresh is not None:
            self._fresh.unit(audio_ms)
            self.phase = Phase.READY

    def fresh_failed(self, now: float, generation: int, retry_after_s: float | None = None) -> None:
        """It was refused, or is lost; its place was given back."""
        if self._awaited(generation, Phase.OPENING, Phase.WARMING, Phase.READY, Phase.SWITCHING):
            self._give_up_fresh()
            rest = min(self._waits.rest_max, self._waits.rest_first * 2 ** min(self._failures, 16))
            self._failures += 1
            self._rest_until = now + max(rest, min(retry_after_s or 0.0, self._waits.rest_max))

    def fresh_closed(self, generation: int) -> None:
        if self._awaited(generation, Phase.DROPPING):
            self._give_up_fresh()

    def switched(self, generation: int) -> None:
        if not self._awaited(generation, Phase.SWITCHING) or self._fresh is None:
            return
        old, was_there = self.generation, self._gone_at is None
        self.context, self.generation = self._fresh, generation
        self._give_up_fresh()
        self._response, self._undecided = False, 0
        self._gone_at = self._held_at = self._unheard_at = None
        self._refreshes = self._failures = 0
        self.switches += 1
        if was_there:
            self._closing = old
            self._out.append(CloseOld(old, "rolled_over"))

    def old_closed(self, now: float, generation: int) -> None:
        """The engine session of this generation is gone, or given up: its seat was told."""
        if self.phase is Phase.CLEARING and generation == self.generation:
            self.phase, self._response = Phase.STEADY, False
            self._gone(now, "rollover_failed")
        elif generation == self._closing:
            self._closing = None

    # --- what is wanted -------------------------------------------------------------------------------

    def fits(self, audio_ms: int, frame_groups: int = 0) -> bool:
        """One more append may go to the current session; otherwise it waits for the switch."""
        here = self._gone_at is None and self.phase not in (Phase.CLEARING, Phase.ENDED)
        return here and self.context.fits(audio_ms, frame_groups)

    def wants(self, now: float) -> tuple[Want, ...]:
        """What is to be done now; each once."""
        if self.phase is not Phase.ENDED:
            if self._gone_at is not None:
                self._restore(now, self._gone_at)
            elif self.context.tokens >= self.context.prepare_at:
                self._roll(now)
        out, self._out = tuple(self._out), []
        return out

    def next_at(self, now: float) -> float | None:
        """When ``wants`` may say something new though nothing happens; ``None``: not before."""
        if self.phase is Phase.ENDED:
            return None
        times = [self._rest_until] if self.phase is Phase.STEADY else []
        if self._gone_at is not None:
            times.append(self._gone_at + self._waits.without)
        if self._unheard_at is not None:
            times.append(self._unheard_at + self._waits.heard)
        if self._quiet_at is not None and not self._horizon.turn_ends:
            times += (self._quiet_at + self._unit_ms / 1000, self._quiet_at + self._silence)
        return min((at for at in times if at > now), default=None)

    def statistics(self) -> dict[str, int | str]:
        return {
            "phase": self.phase.value,
            "generation": self.generation,
            "switches": self.switches,
            "failures": self._failures,
            "context_tokens": self.context.tokens,
            "context_limit": self.context.limit or 0,
        }

    # --- the two ways ---------------------------------------------------------------------------------

    def _roll(self, now: float) -> None:
        """The context fills."""
        context = self.context
        forced, hurry = context.tokens >= context.force_at, context.tokens >= context.hurry_at
        if self._horizon.seed is Seed.NONE:
            if forced and (not self._response or not context.fits(self._unit_ms)):
                self._end(
                    "context_exhausted", "the model's context is full and it can't be told what was said"
                )
        elif self.phase is Phase.READY:
            if forced or self._boundary(now):
                stale = self._talked or self._seed_revision != self._seeds.revision
                if not stale or hurry or self._refreshes >= REFRESHES:
                    self._switch(now, forced=not self._boundary(now))
                elif self._settled(now):
                    self._refreshes += 1
                    self.phase = Phase.DROPPING
                    self._out.append(CloseFresh(self._opened, "seed_out_of_date"))
        elif self.phase is not Phase.STEADY:
            return
        elif not self._spare or (forced and self._failures):
            if self._settled(now) or not context.fits(self._unit_ms, 1):
                self.phase, self._held_at = Phase.CLEARING, now
                self._out.append(CloseOld(self.generation, "make_room", self._ending()))
                self._response = False
            elif self._spare and now >= self._rest_until:
                self._open()
        elif self._closing is None and now >= self._rest_until and (hurry or self._settled(now)):
            self._open()

    def _restore(self, now: float, gone_at: float) -> None:
        """There is no engine session."""
        if self._horizon.seed is Seed.NONE:
            self._end("engine_lost", "the engine session is gone and the model can't be told what was said")
        elif self.phase is Phase.READY:
            self._switch(now, forced=True)
        elif self.phase is not Phase.SWITCHING and now >= gone_at + self._waits.without:
            self._end(self._gone_code, f"no engine session could be opened within {self._waits.without:g} s")
        elif self.phase is Phase.STEADY and now >= self._rest_until:
            self._open()

    def _open(self) -> None:
        self._opened += 1
        seed = self._seeds.seed()
        self._fresh, self._seed_revision, self._talked = self._context(seed), self._seeds.revision, False
        self.phase = Phase.OPENING
        self._out.append(OpenFresh(self._opened, seed))

    def _switch(self, now: float, *, forced: bool) -> None:
        self.phase = Phase.SWITCHING
        gap = 0 if self._held_at is None else max(0, round((now - self._held_at) * 1000))
        self._out.append(Switch(self._opened, self._ending(), gap, forced))

    def _end(self, code: str, message: str) -> None:
        if self.phase in (Phase.OPENING, Phase.WARMING, Phase.READY):
            self._out.append(CloseFresh(self._opened, code))
        self.phase = Phase.ENDED
        self._out.append(EndClearly(code, message))

    # --- parts ----------------------------------------------------------------------------------------

    @property
    def _speech(self) -> bool:
        return self._user_speaks or self._model_speaks

    @property
    def _silence(self) -> float:
        """Seconds of silence that are a boundary now: fewer as the context fills."""
        unit = self._unit_ms / 1000
        return max(unit, self._waits.silence + (unit - self._waits.silence) * self.context.pressure)

    def _quiet(self, now: float, seconds: float) -> bool:
        return self._quiet_at is not None and now >= self._quiet_at + seconds

    def _boundary(self, now: float) -> bool:
        """A switch now cuts nobody short."""
        if not self._horizon.turn_ends:
            return self._quiet(now, self._silence)
        awaited = 0 < self._undecided <= UNDECIDED
        return not awaited and not self._response and not self._user_speaks

    def _settled(self, now: float) -> bool:
        """A seed made now has the last turn in it."""
        if not self._horizon.turn_ends:
            return self._quiet(now, self._unit_ms / 1000)
        waited = self._unheard_at is None or now >= self._unheard_at + self._waits.heard
        return self._boundary(now) and waited

    def _ending(self) -> str | None:
        if not self._response:
            return None
        return "incomplete" if self._horizon.turn_ends else "completed"

    def _gone(self, now: float, code: str) -> None:
        self._gone_at, self._gone_code = now, code
        self._failures, self._rest_until = 0, now

    def _awaited(self, generation: int, *phases: Phase) -> bool:
        return generation == self._opened and self.phase in phases

    def _give_up_fresh(self) -> None:
        self._fresh = None
        self.phase = Phase.STEADY

    def _context(self, seed: str | None) -> Context:
        return Context(self._horizon, unit_ms=self._unit_ms, seed=seed, unlimited=self._unlimited)
