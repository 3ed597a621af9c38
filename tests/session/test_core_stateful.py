"""The core against a simple model, over random sequences of commands, outputs and carried effects.

Checked after every step: response ids are unique; at most one response is active and each ends exactly once;
nothing of an old epoch is emitted after its cancel; every command ends once; reserved bytes are released; the
log tells the same story as the events, in order; nothing follows the session's last event.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.session.backend import (
    Action,
    Closed,
    Decision,
    Failed,
    QueryAsked,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.commands import (
    AnyCommand,
    AppendInput,
    AskQuery,
    Cancel,
    Close,
    CommitInput,
    CreateResponse,
)
from orchestrator.session.core import SessionCore
from orchestrator.session.effects import BackendAppend, BackendTell, Completed, Emit, Record, Reject
from orchestrator.session.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseEvent,
    SessionClosed,
    SessionExpired,
)
from orchestrator.session.facts import EpochBegun, ResponseEnded, ResponseStarted
from orchestrator.session.fence import Fence
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError
from tests.session.driver import CAPABILITIES, Driver

LIMIT = 300


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        core = SessionCore(
            "duplex-1", SessionConfig("m"), CAPABILITIES, SessionLimits(max_pending_input_bytes=LIMIT)
        )
        self.d = Driver(core, auto=False)
        self.sent: list[AnyCommand] = []
        self.serial = 0
        self.fences = [Fence()]

    # --- what a client does ---

    def _send(self, command: AnyCommand) -> None:
        """As the runtime: one command at a time, except cancel and close."""
        if self.d.pending and not isinstance(command, Cancel | Close):
            self.d.carry()
            while self.d.pending:
                self.d.carry()
        try:
            admitted = self.d.core.admit(command)
        except VigilError:
            return
        if admitted:
            self.sent.append(command)
            self.d._absorb(self.d.core.handle(0.0, command))
        self.fences.append(self.d.core.fence)

    def _name(self) -> str:
        self.serial += 1
        return f"op{self.serial}"

    @rule(size=st.integers(1, 200), again=st.booleans())
    def append(self, size: int, again: bool) -> None:
        if again and self.serial:
            self.serial -= 1
        self._send(AppendInput(self._name(), InputUnit((FrameInput(b"x" * size, 0),))))

    @rule(text=st.text(max_size=20))
    def ask(self, text: str) -> None:
        self._send(AskQuery(text, self._name()))

    @rule(create=st.booleans())
    def commit(self, create: bool) -> None:
        self._send(CommitInput(create))

    @rule()
    def create(self) -> None:
        self._send(CreateResponse())

    @rule(which=st.sampled_from([None, "unknown", "last", "active"]))
    def cancel(self, which: str | None) -> None:
        created = self.d.of(ResponseCreated)
        named = created[-1].response_id if created and which in ("last", "active") else which
        self._send(Cancel(named))

    @precondition(lambda self: len(self.sent) > 8)
    @rule(reason=st.sampled_from(["client_close", "idle_ttl_expired"]), fault=st.booleans())
    def close(self, reason: str, fault: bool) -> None:
        self._send(Close(reason, EngineUnavailable("gone") if fault else None))

    # --- what the runtime and the backend do ---

    @precondition(lambda self: self.d.pending)
    @rule(fails=st.booleans())
    def carry(self, fails: bool) -> None:
        self.d.carry(InvalidRequest("no") if fails else None)

    @rule(data=st.data(), action=st.sampled_from(Action))
    def decide(self, data: st.DataObject, action: Action) -> None:
        fence = data.draw(st.sampled_from(self.fences))
        self.d.yields(TickStarted(fence, 1, ()), Decision(fence, 1, action, 0.5))

    @rule(data=st.data(), text=st.text(max_size=5))
    def text(self, data: st.DataObject, text: str) -> None:
        self.d.yields(TextDelta(data.draw(st.sampled_from(self.fences)), text))

    @rule(data=st.data(), status=st.sampled_from(["completed", "incomplete", "failed"]))
    def end(self, data: st.DataObject, status: str) -> None:
        self.d.yields(TurnEnd(data.draw(st.sampled_from(self.fences)), status))

    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        fence = data.draw(st.sampled_from(self.fences))
        self.d.yields(TickDone(fence, 1, (f"op{self.serial}",), {"tick": 1}))

    @rule(data=st.data(), fatal=st.sampled_from([False, False, False, True]))
    def fail(self, data: st.DataObject, fatal: bool) -> None:
        self.d.yields(Failed(data.draw(st.sampled_from(self.fences)), "engine_error", "no", fatal))

    @precondition(lambda self: len(self.sent) > 8)
    @rule()
    def backend_closes(self) -> None:
        self.d.yields(Closed("gone"))

    # --- what must always hold ---

    @invariant()
    def responses_begin_and_end_once(self) -> None:
        active: str | None = None
        seen: set[str] = set()
        epoch = 0
        for effect in self.d.effects:
            if isinstance(effect, Record) and isinstance(effect.fact, EpochBegun):
                epoch = effect.fact.epoch
            if not isinstance(effect, Emit) or not isinstance(effect.event, ResponseEvent):
                continue
            event = effect.event
            if isinstance(event, ResponseCreated):
                assert active is None, "two active responses"
                assert event.response_id not in seen, "an id was reused"
                assert event.fence.epoch == epoch
                seen.add(event.response_id)
                active = event.response_id
            assert event.response_id == active, f"{event.type} outside its response"
            if isinstance(event, OutputTextDelta):
                assert event.fence.epoch == epoch, "output of an old epoch"
            if isinstance(event, ResponseDone):
                active = None

    @invariant()
    def text_is_heard_as_emitted(self) -> None:
        emitted: Counter[str] = Counter()
        texts: dict[str, str] = {}
        for event in self.d.events():
            if isinstance(event, OutputTextDelta):
                texts[event.response_id] = texts.get(event.response_id, "") + event.delta
                emitted[event.response_id] += 1
            if isinstance(event, ResponseDone):
                assert event.text == texts.get(event.response_id, "")

    @invariant()
    def the_log_tells_the_same_story(self) -> None:
        story = [e.fact for e in self.d.effects if isinstance(e, Record)]
        started = [f.response_id for f in story if isinstance(f, ResponseStarted)]
        ended = [f.response_id for f in story if isinstance(f, ResponseEnded)]
        assert started == [e.response_id for e in self.d.of(ResponseCreated)]
        assert ended == started[: len(ended)]
        assert len(started) - len(ended) in (0, 1)
        epochs = [f.epoch for f in story if isinstance(f, EpochBegun)]
        assert epochs == list(range(1, len(epochs) + 1))
        assert self.d.core.fence.epoch == len(epochs)

    @invariant()
    def bytes_held_are_those_in_flight(self) -> None:
        held = 0
        for effect in self.d.pending:
            if isinstance(effect, BackendAppend):
                held += effect.append.unit.size
            elif isinstance(effect, BackendTell) and isinstance(effect.fact, QueryAsked):
                held += len(effect.fact.text.encode())
        assert self.d.core.statistics()["pending_input_bytes"] == held <= LIMIT

    @invariant()
    def every_command_ends_once(self) -> None:
        ended = [e.command for e in self.d.effects if isinstance(e, Completed | Reject)]
        waiting = [e.command for e in self.d.pending if e.command is not None]
        assert len(ended) + sum(any(w is s for s in self.sent) for w in waiting) == sum(
            1 for _ in self.sent
        ) + sum(not any(c is s for s in self.sent) for c in ended)

    @invariant()
    def nothing_follows_the_end(self) -> None:
        ends = [i for i, e in enumerate(self.d.events()) if isinstance(e, SessionClosed | SessionExpired)]
        assert len(ends) <= 1
        if ends:
            assert ends[0] == len(self.d.events()) - 1
            started, done = self.d.of(ResponseCreated), self.d.of(ResponseDone)
            assert len(started) == len(done)

    @invariant()
    def errors_are_typed(self) -> None:
        for event in self.d.of(ErrorEvent):
            assert event.error.code


Sessions.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSessions = Sessions.TestCase
