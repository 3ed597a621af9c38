"""What time brings: silence for a model that is speaking, a context that fills, an engine that says nothing.

Some engines feed themselves silence while they speak and the user does not; for the others one unit a period
is made here, up to a limit for one response. Real input that waits always takes its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orchestrator.backends.native.live import Live
from orchestrator.backends.native.responses import Bound
from orchestrator.backends.waiting import set_within
from prompts.native import SilenceContinuation

AUTO_UNITS, TURN_UNITS = 64, 8
"""Units of silence for one response."""
LATE = 0.5
"""Of a unit, that the client's next audio may be late."""


class Minder:
    """:param step: does what the rollover wants, at every turn"""

    def __init__(self, live: Live, step: Callable[[float], Awaitable[None]]) -> None:
        self._live = live
        self._step = step
        self._limit = AUTO_UNITS if live.tools.auto else TURN_UNITS
        self._fed_at: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        live, clock = self._live, self._live.tools.clock
        while True:
            live.minding.clear()
            now = clock.now()
            await self._step(now)
            await self._feed_silence(now)
            await self._check_wedged(now)
            now = clock.now()
            times = (live.rollover.next_at(now), self._due(self._open()), self._wedged_at())
            due = min((at for at in times if at is not None), default=None)
            if due is None:
                await live.minding.wait()
                continue
            await set_within(live.minding, clock.sleep(max(0.0, due - now)))

    # --- silence --------------------------------------------------------------------------------------

    def _open(self) -> Bound | None:
        """The response for which silence is made."""
        live = self._live
        if live.pairing is None or live.intake.waits:
            return None
        begun = (each for each in live.responses.open() if each.key is not None)
        return next((each for each in begun if not live.responses.is_stale(each)), None)

    def _due(self, bound: Bound | None) -> float | None:
        """When the next unit of silence is due: a period after the last one, whatever that was."""
        live = self._live
        times = [at + live.unit_s for at in (live.written_at, self._fed_at) if at is not None]
        if bound is None or not times:
            return None
        heard = live.intake.last_audio_at
        # A microphone that is a little late still goes before silence.
        return max(*times, -1.0 if heard is None else heard + (1 + LATE) * live.unit_s)

    async def _feed_silence(self, now: float) -> None:
        live, bound = self._live, self._open()
        due = self._due(bound)
        if bound is None or due is None or now < due:
            return
        self._fed_at = now
        if live.tools.profile.silence_continuation is SilenceContinuation.ENGINE:
            live.rollover.unit(now, live.tools.profile.audio.unit_ms)  # it feeds itself as much
        elif bound.silence_units < self._limit:
            bound.silence_units += 1
            live.intake.silence(lambda: not (live.responses.is_stale(bound) or live.intake.real()))
        else:
            await live.out.stop(bound)

    # --- an engine that says nothing ------------------------------------------------------------------

    def _wedged_at(self) -> float | None:
        """When an engine that owes an answer has been silent too long.

        One that speaks, but says nothing of single units, owes nothing for them; one that never said a word
        is given longer.
        """
        live, options = self._live, self._live.tools.options
        patience_s = options.mute_s if live.mute else options.wedged_s
        since = live.owed_at if live.answers_units or live.mute else None
        if not live.tools.auto:
            patience_s = options.wedged_s
            since = live.told_at if live.responses.asked is not None else None
        if live.pairing is None or since is None:
            return None
        return since + patience_s

    async def _check_wedged(self, now: float) -> None:
        at, pairing = self._wedged_at(), self._live.pairing
        if at is not None and now >= at and pairing is not None:
            self._live.tools.pairings.leave(pairing, "wedged")
            await self._live.lose("wedged", confirmed=False, left=True)
