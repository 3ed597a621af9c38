"""The core against a simple model, over random sequences of commands, outputs, carried effects and sockets.

Checked after every step: response ids are unique and each response begins and ends exactly once, in the
order of the contract; nothing of an old epoch is emitted after its cancel; every command ends once; ledgers
only grow; outbox and journal stay within their bounds; numbers on the wire have no gaps and no event is
lost or doubled over reconnects; nothing follows the session's last event. At the end every byte is released.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from orchestrator.session.backend import (
    PLAYBACK,
    Action,
    AudioDelta,
    Capabilities,
    Closed,
    Decision,
    Failed,
    PlaybackHeld,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TickDone,
    TickStarted,
    TurnDetection,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import (
    IMMEDIATE,
    AckEvents,
    AnyCommand,
    AppendInput,
    AskQuery,
    Cancel,
    ClearInput,
    ClearOutput,
    Close,
    CommitInput,
    CreateItem,
    CreateResponse,
    Interrupt,
    PlaybackAck,
    Reconfigure,
    TruncateItem,
)
from orchestrator.session.effects import Completed, Emit, Record, Reject
from orchestrator.session.events import (
    ErrorEvent,
    Event,
    OutputAudioDelta,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseEvent,
    SessionClosed,
    SessionExpired,
)
from orchestrator.session.facts import EpochBegun, ResponseEnded, ResponseStarted
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.session.playback import Cursors
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError
from orchestrator.wire.server import Written
from tests.session.driver import Driver, make_core

LIMITS = SessionLimits(
    max_pending_input_bytes=300,
    journal_bytes=60_000,
    outbox=OutboxLimits(max_bytes=40_000, max_events=64),
)
ENDS = (SessionClosed, SessionExpired)


class Sessions(RuleBasedStateMachine):
    @initialize(
        auto=st.booleans(),
        holds=st.booleans(),
        concurrent=st.booleans(),
        modalities=st.sampled_from([("text",), ("text", "audio")]),
        policy=st.sampled_from(["ack_only", "wall_clock"]),
        socket=st.booleans(),
        ears=st.tuples(st.booleans(), st.booleans()),
    )
    def open(
        self,
        auto: bool,
        holds: bool,
        concurrent: bool,
        modalities: tuple[str, ...],
        policy: str,
        socket: bool,
        ears: tuple[bool, bool],
    ) -> None:
        hears, detects = ears
        capabilities = Capabilities(
            1000,
            optional_input_modalities=("audio", "video"),
            output_modalities=("text", "audio"),
            holds_turn_input=holds and not hears,
            transcribes=hears,
            concurrent_turns=concurrent,
        )
        core = make_core(
            capabilities,
            LIMITS,
            auto_response=auto,
            modalities=modalities,
            playback_policy=policy,
            turn_detection=TurnDetection() if detects else None,
            overlap_policy="barge_in_on_speech" if detects else "listen_only",
            include=(PLAYBACK,),
        )
        self.d = Driver(core, auto=False)
        self.sent: list[AnyCommand] = []
        self.names = 0
        self.fences = [Fence()]
        self.generation = 0
        self.token: str | None = None
        self.received: list[dict[str, Any]] = []
        self.resync = False
        self.ledgers: dict[str, Cursors] = {}
        if socket:
            ticket, effects = core.attach(0.0)
            self.d.absorb(effects)
            self.generation, self.token = ticket.generation, ticket.token

    # --- what a client does ---

    def _send(self, command: AnyCommand) -> None:
        """As the runtime does: in order, one at a time unless the command is immediate."""
        while self.d.pending and not isinstance(command, IMMEDIATE):
            self.d.carry()
        self.d.now += 0.05
        try:
            admitted = self.d.core.admit(command)
        except VigilError:
            return
        if admitted:
            self.sent.append(command)
            self.d.absorb(self.d.core.handle(self.d.now, command))
        self.fences.append(self.d.core.fence)

    @rule(
        size=st.integers(1, 100),
        again=st.booleans(),
        audio=st.booleans(),
        speech=st.booleans(),
        ms=st.sampled_from([100.0, 800.0]),
        hint=st.sampled_from([None, None, "barge_in", "ack", "drop"]),
    )
    def append(self, size: int, again: bool, audio: bool, speech: bool, ms: float, hint: str | None) -> None:
        self.names += not again
        data = b"x" * size
        unit = InputUnit(pcm=data) if audio else InputUnit((FrameInput(data, 0),))
        command = AppendInput(
            f"op{self.names}",
            unit,
            is_speech=audio and speech,
            duration_ms=ms if audio else 0.0,
            overlap_action=hint,
        )
        self._send(command)

    @rule(text=st.text(max_size=20))
    def ask(self, text: str) -> None:
        self.names += 1
        self._send(AskQuery(text, f"item_q{self.names}"))

    @rule(sizes=st.lists(st.integers(1, 60), max_size=2), text=st.text(max_size=5), again=st.booleans())
    def message(self, sizes: list[int], text: str, again: bool) -> None:
        self.names += not again
        pictures = tuple(
            AppendInput(f"pic{self.names}.{n}.{len(self.sent)}", InputUnit((FrameInput(b"x" * size, 0),)))
            for n, size in enumerate(sizes)
        )
        item = Item(f"item_m{self.names}", "user", content=(ContentPart("input_text", text),))
        self._send(CreateItem(item, None, pictures))

    @rule(body=st.sampled_from([{"instructions": "x"}, {"model": "other"}, {"max_tokens": 7}]))
    def update(self, body: dict[str, Any]) -> None:
        self._send(Reconfigure(body))

    @rule(create=st.booleans())
    def commit(self, create: bool) -> None:
        self._send(CommitInput(create))

    @rule(
        command=st.sampled_from(
            [CreateResponse(), ClearInput(), ClearOutput(), Interrupt(True), Interrupt(False)]
        )
    )
    def command(self, command: AnyCommand) -> None:
        # Equal commands are told apart by identity, as in the runtime.
        self._send(type(command)(**{f: getattr(command, f) for f in type(command).__slots__}))

    @rule(which=st.sampled_from([None, "unknown", "last"]))
    def cancel(self, which: str | None) -> None:
        created = self.d.of(ResponseCreated)
        named = created[-1].response_id if created and which == "last" else which
        self._send(Cancel(named))

    @rule(ms=st.integers(0, 3000), name=st.booleans(), truncate=st.booleans())
    def ack(self, ms: int, name: bool, truncate: bool) -> None:
        created = self.d.of(ResponseCreated)
        response_id = created[-1].response_id if created and name else None
        if truncate and response_id is not None:
            self._send(TruncateItem("item_" + response_id, 0, ms))
        else:
            self._send(PlaybackAck(ms, response_id=response_id))

    @precondition(lambda self: len(self.sent) > 12)
    @rule(reason=st.sampled_from(["client_close", "idle_ttl_expired"]), fault=st.booleans())
    def close(self, reason: str, fault: bool) -> None:
        self._send(Close(reason, EngineUnavailable("gone") if fault else None))

    # --- the socket ---

    @precondition(lambda self: self.generation and self.d.core.is_seated(self.generation))
    @rule(count=st.integers(1, 20))
    def write(self, count: int) -> None:
        for _ in range(count):
            self._receive(self.d.core.take(self.d.now))

    def _receive(self, events: tuple[Written, ...]) -> None:
        for event in events:
            if event.type == "session.resync_required":
                self.resync = True
            if event.type not in ("session.created", "session.resync_required"):
                self.received.append(event.value)

    @precondition(lambda self: self.received and not self.resync)
    @rule()
    def ack_events(self) -> None:
        self._send(AckEvents(self.received[-1]["server_event_seq"]))

    @precondition(lambda self: self.token and not self.resync)
    @rule(lost=st.integers(0, 3), drop=st.booleans())
    def reconnect(self, lost: int, drop: bool) -> None:
        """The socket breaks, perhaps with events on the way; or another one takes over."""
        if drop:
            self.d.absorb(self.d.core.detach(self.d.now, self.generation))
        while lost and self.received and self._unacknowledged():
            self.received.pop()
            lost -= 1
        after = self.received[-1]["server_event_seq"] if self.received else 0
        try:
            resumed = self.d.core.resume(self.d.now, self.token, after)
        except VigilError as refused:
            assert refused.code == "session_resume_expired"
            self.token = None
            self.resync = True  # what was lost on the way stays lost
            return
        self.d.absorb(resumed.effects)
        if resumed.missed is None or resumed.ticket is None:
            self.resync = True
            return
        self.generation, self.token = resumed.ticket.generation, resumed.ticket.token
        self._receive(resumed.missed)

    def _unacknowledged(self) -> bool:
        acked = [c.seq for c in self.sent if isinstance(c, AckEvents)]
        return bool(self.received[-1]["server_event_seq"] > max(acked, default=0))

    # --- what the runtime and the backend do ---

    @precondition(lambda self: self.d.pending)
    @rule(fails=st.sampled_from([False, False, True]))
    def carry(self, fails: bool) -> None:
        self.d.carry(InvalidRequest("no") if fails else None)

    @rule(data=st.data(), action=st.sampled_from(Action))
    def decide(self, data: st.DataObject, action: Action) -> None:
        fence = self._fence(data)
        self.d.yields(TickStarted(fence, 1, ()), Decision(fence, 1, action, 0.5))

    @rule(data=st.data(), text=st.text(max_size=5), ms=st.sampled_from([0, 0, 40, 700]))
    def output(self, data: st.DataObject, text: str, ms: int) -> None:
        fence = self._fence(data)
        self.d.yields(TextDelta(fence, text))
        if ms and "audio" in self.d.core.config.modalities:
            self.d.yields(AudioDelta(fence, bytes(2 * 8 * ms), 8000))

    @rule(data=st.data(), status=st.sampled_from(["completed", "incomplete", "failed"]))
    def end(self, data: st.DataObject, status: str) -> None:
        self.d.yields(TurnEnd(self._fence(data), status))

    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        self.d.yields(TickDone(self._fence(data), 1, (f"op{self.names}",), {"tick": 1}))
        self.d.absorb(self.d.core.tick(self.d.now, busy=True))

    @rule(started=st.booleans())
    def hear(self, started: bool) -> None:
        self.d.yields(SpeechStarted(Fence(), 0) if started else SpeechStopped(Fence(), 9))

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.d.yields(PlaybackHeld(Fence(), held))

    @rule(text=st.sampled_from(["hello", "what is it"]), final=st.booleans())
    def transcribe(self, text: str, final: bool) -> None:
        self.d.yields(UserTranscript(Fence(), text, final, 0, 9))

    @precondition(lambda self: len(self.sent) > 12)
    @rule(data=st.data(), fatal=st.sampled_from([False, False, False, True]))
    def fail(self, data: st.DataObject, fatal: bool) -> None:
        self.d.yields(Failed(self._fence(data), "engine_error", "no", fatal))

    @precondition(lambda self: len(self.sent) > 20)
    @rule()
    def backend_closes(self) -> None:
        self.d.yields(Closed("gone"))

    def _fence(self, data: st.DataObject) -> Fence:
        return data.draw(st.sampled_from(self.fences[-6:]))

    # --- what must always hold ---

    @invariant()
    def responses_begin_and_end_once(self) -> None:
        live: set[str] = set()
        seen: set[str] = set()
        epoch = 0
        for effect in self.d.effects:
            if isinstance(effect, Record) and isinstance(effect.fact, EpochBegun):
                epoch = effect.fact.epoch
            if not isinstance(effect, Emit) or not isinstance(effect.event, ResponseEvent):
                continue
            event = effect.event
            if isinstance(event, ResponseCreated):
                assert event.response_id not in seen, "an id was reused"
                assert event.fence.epoch == epoch
                seen.add(event.response_id)
                live.add(event.response_id)
            if event.type != "output_audio_buffer.cleared":
                assert event.response_id in live, f"{event.type} outside its response"
            if isinstance(event, OutputTextDelta | OutputAudioDelta):
                assert event.fence.epoch == epoch, "output of an old epoch"
            if isinstance(event, ResponseDone):
                live.discard(event.response_id)

    @invariant()
    def text_ends_as_it_was_emitted(self) -> None:
        texts: dict[str, str] = {}
        for event in self.d.events():
            if isinstance(event, OutputTextDelta):
                texts[event.response_id] = texts.get(event.response_id, "") + event.delta
            if isinstance(event, ResponseDone) and event.response_id in texts:
                assert event.text == texts[event.response_id]

    @invariant()
    def the_log_tells_the_same_story(self) -> None:
        story = [e.fact for e in self.d.effects if isinstance(e, Record)]
        started = [f.response_id for f in story if isinstance(f, ResponseStarted)]
        ended = [f.response_id for f in story if isinstance(f, ResponseEnded)]
        assert started == [e.response_id for e in self.d.of(ResponseCreated)]
        assert len(set(ended)) == len(ended)
        assert set(ended) <= set(started)
        epochs = [f.epoch for f in story if isinstance(f, EpochBegun)]
        assert epochs == list(range(1, len(epochs) + 1))
        assert self.d.core.fence.epoch == len(epochs)

    @invariant()
    def ledgers_only_grow(self) -> None:
        for created in self.d.of(ResponseCreated):
            ledger = self.d.core._book.get(created.response_id)
            assert ledger is not None
            now, before = ledger.cursors(), self.ledgers.get(created.response_id, Cursors())
            for cursor in ("generated_ms", "sent_ms", "played_ms", "committed_ms"):
                assert getattr(now, cursor) >= getattr(before, cursor)
            assert now.generated_ms >= now.sent_ms
            self.ledgers[created.response_id] = now

    @invariant()
    def every_command_ends_once(self) -> None:
        ended = [id(e.command) for e in self.d.effects if isinstance(e, Completed | Reject)]
        assert len(set(ended)) == len(ended)
        if not self.d.pending:
            assert set(ended) >= {id(command) for command in self.sent}

    @invariant()
    def bounds_hold(self) -> None:
        figures: dict[str, Any] = self.d.core.statistics()
        assert figures["pending_input_bytes"] <= LIMITS.max_pending_input_bytes
        assert figures["outbox"]["bytes"] <= LIMITS.outbox.max_bytes
        assert figures["outbox"]["events"] <= LIMITS.outbox.max_events + LIMITS.outbox.reserve_events + 1
        assert figures["journal"]["bytes"] <= LIMITS.journal_bytes

    @invariant()
    def the_wire_has_no_gaps(self) -> None:
        if not self.resync:
            numbers = [payload["server_event_seq"] for payload in self.received]
            assert numbers == list(range(1, len(numbers) + 1))
            ids = [payload["event_id"] for payload in self.received]
            assert len(set(ids)) == len(ids)

    @invariant()
    def nothing_follows_the_end(self) -> None:
        events: list[Event] = self.d.events()
        ends = [i for i, event in enumerate(events) if isinstance(event, ENDS)]
        assert len(ends) <= 1
        if ends:
            assert ends[0] == len(events) - 1
            assert len(self.d.of(ResponseCreated)) == len(self.d.of(ResponseDone))
        for error in self.d.of(ErrorEvent):
            assert error.error.code

    def teardown(self) -> None:
        if not hasattr(self, "d"):
            return
        self._send(Close())
        while self.d.pending:
            self.d.carry()
        self.every_command_ends_once()
        self.nothing_follows_the_end()
        figures: dict[str, Any] = self.d.core.statistics()
        assert figures["state"] == "closed"
        assert figures["pending_input_bytes"] == 0
        assert figures["operations"]["in_flight"] == 0


Sessions.TestCase.settings = settings(max_examples=200, stateful_step_count=50, report_multiple_bugs=False)
TestSessions = Sessions.TestCase
