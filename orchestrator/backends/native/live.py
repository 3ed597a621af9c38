"""A session with an engine session: input goes in on one side, the engine's words come out on the other.

Its tasks: the writer of units (``Intake``), one reader for each engine session, those that tell in time what
waits to be told (``Outgoing``), and the one that minds the time (``Minder``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from bridges.duplex_client.link import (
    AudioChunk,
    EngineEvent,
    EngineFault,
    EngineLink,
    EngineUnit,
    Heard,
    InputCommitted,
    LinkEnded,
    LinkError,
    LinkLost,
    LinkResumed,
    Listening,
    StageMetrics,
    ToolCall,
    UserSpeech,
)
from memory.store.errors import StoreError
from orchestrator.backends.native.counted import EngineCount
from orchestrator.backends.native.delegating import TOOL, Delegating
from orchestrator.backends.native.facts import EngineSessionEnded
from orchestrator.backends.native.faults import told_of
from orchestrator.backends.native.intake import Intake
from orchestrator.backends.native.options import NativeOptions
from orchestrator.backends.native.outgoing import Outgoing
from orchestrator.backends.native.pairing import Pairing, Pairings
from orchestrator.backends.native.records import UnitRecords
from orchestrator.backends.native.remembered import Remembered
from orchestrator.backends.native.responses import Bound, Responses
from orchestrator.backends.native.rollover import Rollover
from orchestrator.backends.native.tools import ToolCalls
from orchestrator.backends.native.units import Origin, Splitter, Unit
from orchestrator.backends.store_faults import told_of as store_told_of
from orchestrator.backends.stream import OutputStream
from orchestrator.session.backend import BackendOutput, Clock, Failed, Ids, Notice
from orchestrator.session.fence import Fence
from orchestrator.session.playback import heard_prefix
from orchestrator.wire.audio import Samples, float_to_pcm16
from orchestrator.wire.errors import ServerFault, VigilError
from prompts.native import NativeProfile

REPORT_MS = 10_000
"""Of speech that was heard, before memory is told of it while the response still runs."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveTools:
    """What a live session works with.

    :param auto: the model decides when to speak
    :param detects: the client asked for the engine's detector
    :param engine_commits: that detector seals turns
    :param frame_units: the engine takes a frame group without audio
    :param delegating: answers what the model hands over
    """

    profile: NativeProfile
    options: NativeOptions
    clock: Clock
    stream: OutputStream
    pairings: Pairings
    memory: Remembered
    ids: Ids
    auto: bool
    detects: Callable[[], bool]
    engine_commits: bool
    frame_units: bool
    delegating: Delegating | None = None


class Live:
    """:param pairing: the engine session that is open now
    :param rollover: says when it is left for another one
    """

    def __init__(self, tools: LiveTools, pairing: Pairing, rollover: Rollover) -> None:
        profile, options, clock = tools.profile, tools.options, tools.clock
        audio = profile.audio
        self.tools = tools
        self.pairing: Pairing | None = pairing
        self.rollover = rollover
        self.responses = Responses()
        self.unsealed = False
        """The engine has input that was not committed."""
        self.detected = False
        """The engine's detector has sealed a turn, and the session's commit of it is still to come."""
        self.closing = False
        self.linked = asyncio.Event()
        self.linked.set()
        self.minding = asyncio.Event()
        self.unit_s = audio.unit_ms / 1000
        self._records = UnitRecords(tools.memory.note, clock.now, audio.input_rate_hz / 1000)
        self.out = Outgoing(
            tools.stream,
            self.responses,
            rollover,
            clock,
            options,
            self._records.tick,
            lambda: self.pairing,
            turn_ends=profile.horizon.turn_ends,
        )
        self._count = EngineCount(profile.horizon.counted)
        self._splitter = Splitter(audio.unit_samples, audio.unit_ms, frame_units=tools.frame_units)
        self.intake = Intake(
            self._splitter,
            clock,
            unit_s=self.unit_s,
            lead=profile.max_lead_units,
            paced=tools.auto,
            encode=self._encode,
            on_sent=self._sent,
            on_refused=self._refused,
            patience_s=options.patience_s,
            max_bytes=options.max_pending_bytes,
        )
        self.intake.allows = self._allows
        self.intake.switch(pairing.link)
        self.written_at: float | None = None
        """When a unit, of whatever origin, was written last."""
        self.owed_at: float | None = None
        """When the oldest unit was written behind the engine's last word."""
        self.mute = True
        """The engine has not said a single word of this session."""
        self.told_at = 0.0
        """When the engine said its last word, or words were last asked of it."""
        self._losses: deque[float] = deque(maxlen=options.lives)
        self.tool_calls = ToolCalls(tools.ids)
        self.on_lost: Callable[[], Awaitable[None]] = self._nothing
        self.on_other: Callable[[Pairing, EngineEvent], Awaitable[None]] = self._nothing_of

    async def _nothing(self) -> None: ...

    async def _nothing_of(self, pairing: Pairing, event: EngineEvent) -> None: ...

    # --- what the engine says -------------------------------------------------------------------------

    async def read(self, pairing: Pairing) -> None:
        """Take every event of one engine session, until its last."""
        async for event in pairing.link.events():
            if self.closing:
                continue
            if pairing is not self.pairing:
                await self.on_other(pairing, event)
            elif isinstance(event, LinkEnded):
                await self.lose(event.reason, confirmed=event.confirmed)
            else:
                await self._take(event)
            self.minding.set()

    async def _take(self, event: EngineEvent) -> None:
        self.owed_at, self.told_at = None, self.tools.clock.now()
        match event:
            case LinkLost():
                return
            case LinkResumed(unconfirmed=unconfirmed):
                self._records.lost(unconfirmed, "unconfirmed")
                return
            case _:
                self.mute = False
        match event:
            case EngineFault():
                await self._fault(event)
                return
            case InputCommitted():
                self.unsealed = self.unsealed and not self.tools.engine_commits
                self.responses.seal()
                return
            case ToolCall(name=name) if self._is_ours(name):
                await self._hand_over(event)
                return
            case ToolCall():
                responses = self.responses
                await self.out.put(self.tool_calls.called(event, responses.generation, responses.fence))
                return
            case StageMetrics():
                if (tokens := self._count.take(event)) is not None:
                    self.rollover.counted(tokens)
            case UserSpeech() if not self.tools.detects():
                return  # its guess by loudness; the session makes its own
            case UserSpeech(started=started):
                self.detected = self.tools.engine_commits and not started
            case Heard(item_id=item_id, transcript=transcript):
                self.tools.memory.said(item_id, transcript)
            case _:
                pass
        await self.out.take(event, lambda: self._decided(event))

    def _is_ours(self, tool: str) -> bool:
        delegating = self.tools.delegating
        return delegating is not None and delegating.offered and tool == TOOL

    async def _hand_over(self, call: ToolCall) -> None:
        """The model asks a background solver; its answer goes to whoever runs then."""
        asking, delegating = self.responses.generation, self.tools.delegating
        assert delegating is not None

        async def answer(output: str) -> None:
            pairing = self.pairing
            if pairing is None:
                return  # memory has it, and what is opened next is told from there
            item: dict[str, object]
            if pairing.generation == asking:
                item = {"type": "function_call_output", "call_id": call.call_id, "output": output}
            else:
                content = [{"type": "input_text", "text": output}]
                item = {"type": "message", "role": "system", "content": content}
            try:
                await pairing.link.add_item(item)
            except LinkError as error:
                _log.warning("an engine did not take a solver's answer: %s", error)

        await delegating.called(call, self.responses.fence, answer)

    def _decided(self, event: EngineEvent) -> list[BackendOutput]:
        """What the event decides of the oldest unit that waits for it."""
        action = None
        if isinstance(event, Listening) and not event.metadata.get("buffering"):
            action = "listen"
        elif isinstance(event, AudioChunk):
            action = "speak"
        if action is None:
            return []
        outputs, took = self._records.decided(action, self.responses.fence)
        if took is not None and self.pairing is not None:
            self.pairing.seat.paced(self.tools.profile.audio.unit_ms, took)
        self._note_undecided()
        return outputs

    def _note_undecided(self) -> None:
        """Tell the rollover of units that may still be answered, where the engine decides on each."""
        records = self._records
        self.rollover.undecided(records.undecided if records.answered else 0)

    async def _fault(self, fault: EngineFault) -> None:
        """An error that no command waits for: about a unit that was taken, or about the session."""
        unit = self._records.unit_of(fault.event_id) if fault.event_id is not None else None
        if unit is not None and fault.event_id is not None:
            self._records.lost((fault.event_id,), fault.code)
            self.intake.note_failure()
        operations = unit.operations if unit is not None else ()
        told = told_of(LinkError(fault.code, fault.message))
        failed = Failed(self.responses.fence, told.code, told.message, operations=operations)
        await self.out.fail(failed)

    async def lose(self, reason: str, *, confirmed: bool, left: bool = False) -> None:
        """The engine session is gone and its link did not get it back.

        :param left: its place was given back already
        """
        pairing, self.pairing = self.pairing, None
        if pairing is None:
            return
        self.linked.clear()
        self.intake.switch(None)
        self.tools.memory.note(EngineSessionEnded(pairing.generation, reason, confirmed))
        if confirmed:
            self.tools.pairings.ended(pairing)
        elif not left:
            self.tools.pairings.lose(pairing, reason)
        self._records.lost(None, "engine_lost")
        await self.out.end_open("incomplete", "engine_lost")
        self.out.ended.set()
        now = self.tools.clock.now()
        if len(self._losses) == self._losses.maxlen and now - self._losses[0] < self.tools.options.lives_s:
            await self.give_up("engine_lost", "the engine loses this session again and again")
            return
        self._losses.append(now)
        self.rollover.lost(now)
        await self.on_lost()

    async def take_over(self, pairing: Pairing, heard_before: tuple[str, ...]) -> None:
        """Go on with this engine session from the next unit on.

        :param heard_before: responses that it began before; nothing of them is told
        """
        self.responses.begin(pairing.generation)
        for response_id in heard_before:
            self.responses.end(self.responses.of(response_id))
        for output in self._records.begin(pairing.generation, self.responses.fence):
            await self.out.put(output)
        self.pairing = pairing
        self._count.begin()
        self.unsealed = False
        self.owed_at = None
        self.intake.switch(pairing.link)
        self.linked.set()

    async def give_up(self, code: str, message: str) -> None:
        """The session can't go on; the client is told why."""
        await self.out.put(Notice("engine_lost", message))
        await self.out.put(Failed(self.responses.fence, code, message, fatal=True))

    # --- input ----------------------------------------------------------------------------------------

    def _allows(self, unit: Unit) -> bool:
        return self.rollover.fits(unit.duration_ms, bool(unit.frames))

    def _encode(self, unit: Unit) -> EngineUnit:
        audio = self.tools.profile.audio
        pcm = unit.pcm
        if pcm is not None and audio.input_format == "pcm16":
            pcm = float_to_pcm16(_samples(pcm))
        return EngineUnit(
            pcm,
            unit.frames,
            audio.input_format,
            audio.input_rate_hz,
            unit.duration_ms,
            unit.end_ms,
            False if unit.origin is Origin.SILENCE else unit.speech,
        )

    async def _sent(self, unit: Unit, event_id: str, link: EngineLink) -> None:
        now = self.tools.clock.now()
        if self.pairing is None or self.pairing.link is not link:
            # It was on its way when its engine session was left: nothing more is said of it.
            for output in self._records.sent_behind(unit, event_id, self.responses.fence):
                await self.out.put(output)
            return
        if not (self.tools.engine_commits and unit.speech is False):
            self.unsealed = True  # silence is no turn to the engine's detector
        self.written_at = now
        if self.owed_at is None:
            self.owed_at = now
        self.rollover.unit(now, unit.duration_ms, int(bool(unit.frames)))
        if unit.speech is not None:
            self.rollover.speech(now, user=unit.speech)
        if unit.frames:
            self.tools.memory.shown(unit.frames)
        for output in self._records.sent(unit, event_id, self.responses.fence):
            await self.out.put(output)
        self._note_undecided()
        self.minding.set()

    async def _refused(self, unit: Unit, error: VigilError) -> None:
        self._records.gap([unit], error.code)
        failed = Failed(
            self.responses.fence, "runtime_append_failed", error.message, operations=unit.operations
        )
        await self.out.put(failed)

    async def clear(self) -> None:
        """Drop what was not written, and answer for it."""
        dropped = self.intake.clear()
        self.unsealed = False
        if dropped:
            await self.out.put(self._records.cleared(dropped, self.responses.fence))

    def note_heard(self, response_id: str, fence: Fence, committed_ms: int) -> None:
        """One response may run as long as its engine session: memory learns in time what was heard of it."""
        bound = self.responses.by_fence(fence)
        if bound is None or bound.ended or committed_ms - bound.reported_ms < REPORT_MS:
            return
        bound.reported_ms = committed_ms
        text = heard_prefix(bound.text, tuple(bound.marks), bound.audio_ms, committed_ms)
        self.tools.memory.heard(response_id, text, complete=True)

    def ask(self, fence: Fence) -> Bound:
        """Words are wanted; from now on the engine owes some."""
        self.told_at = self.tools.clock.now()
        self.minding.set()
        return self.responses.ask(fence)

    # --- the end --------------------------------------------------------------------------------------

    async def guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """A fault of one task ends this session, with a word to the client, and no other one."""
        try:
            await work()
        except StoreError as fault:
            _log.exception("a session can't be kept any more")
            error = store_told_of(fault)
            await self.out.put(Failed(self.responses.fence, error.code, error.message, fatal=True))
        except Exception as fault:
            _log.exception("a task of a session failed")
            told = ServerFault(f"internal fault: {type(fault).__name__}")
            await self.out.put(Failed(self.responses.fence, told.code, told.message, fatal=True))

    def end(self) -> None:
        """The last of what is recorded."""
        self.out.forget_held()
        self._records.end()

    @property
    def answers_units(self) -> bool:
        """The engine has said something of single units."""
        return self._records.answered > 0

    @property
    def heard_anything(self) -> bool:
        """The model has had input."""
        return self._records.written > 0

    def statistics(self) -> dict[str, dict[str, int]]:
        return {
            "input": self.intake.statistics(),
            "units": self._records.statistics(),
            "responses": self.out.statistics(),
            "context": self.rollover.context.statistics(),
        }


def _samples(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, dtype="<f4")
