"""``Session``: the shell around one ``SessionCore``. One mailbox, one writer, one lane of backend calls.

Three tasks: the worker hands commands to the core in arrival order, the lane carries out backend calls, the
pump hands over what the backend yields. The core itself is only ever run synchronously. Whatever raises
ends this session alone, with a typed error, and wakes everyone who waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from orchestrator.runtime.attachment import Attachment
from orchestrator.runtime.calls import CANCEL_WAIT_S, BackendCalls, bounded
from orchestrator.runtime.clock import system_ids, system_tokens
from orchestrator.runtime.mailbox import Mailbox
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.subscription import Lost, Subscription
from orchestrator.runtime.waiters import Waiters
from orchestrator.session.attachment import Tokens
from orchestrator.session.backend import BackendOutput, Clock, Closed, Ids, SessionConfig
from orchestrator.session.commands import (
    IMMEDIATE,
    AnyCommand,
    AppendInput,
    Close,
    CreateItem,
    OperationCommand,
)
from orchestrator.session.core import SessionCore
from orchestrator.session.delivery import Invitation
from orchestrator.session.effects import (
    Answered,
    BackendClose,
    BackendEffect,
    Carried,
    Completed,
    Dropped,
    Effect,
    Emit,
    Record,
    Reject,
)
from orchestrator.session.events import Event
from orchestrator.session.intake import Intake
from orchestrator.session.lease import Lease, LeaseLimits
from orchestrator.session.limits import SessionLimits
from orchestrator.session.media import MediaClock
from orchestrator.session.operations import Outcome
from orchestrator.session.record import SessionRecord
from orchestrator.session.states import State
from orchestrator.wire import client as wire
from orchestrator.wire.errors import Conflict, EngineUnavailable, ServerFault, VigilError

_log = logging.getLogger(__name__)


class Session:
    """One live session. Make it with ``open``; every method is safe to cancel."""

    def __init__(
        self,
        session_id: str,
        alias: str,
        core: SessionCore,
        parts: SessionParts,
        clock: Clock,
        limits: RuntimeLimits,
        ids: Ids,
        lost: Lost,
    ) -> None:
        record = parts.record or SessionRecord()
        self.id = session_id
        self.alias = alias
        self.closed = asyncio.Event()
        """Set when the client has been told; commands are refused from before that on."""
        self.untouched = parts.record is None
        """True while it has no past and no socket ever had, or was promised, a seat."""
        self.released = False
        """True when the backend's side is really gone and the slot is free."""
        self._core = core
        self.media_clock = MediaClock(clock.now() * 1000, record.newest_ms)
        self._intake = Intake(
            core.config, core.capabilities, ids, core.known, self._check_room, self.media_clock
        )
        self._backend = parts.backend
        self._facts = parts.log
        self._clock = clock
        self._limits = limits
        self._read_out = asyncio.Event()
        self._calls = BackendCalls(
            parts.backend, clock, limits.deadlines, self._read_out.wait, self._on_carried, self._fault
        )
        self._mailbox = Mailbox(core, limits)
        self._changed = asyncio.Event()
        self._due = asyncio.Event()  # of the worker
        self._subscriptions: set[Subscription] = set()
        self._lost = lost
        self._attachments: set[Attachment] = set()
        self._waiters = Waiters(clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._epilogue: asyncio.Task[None] | None = None
        self._closing = False
        self._faulted = False

    @classmethod
    async def open(
        cls,
        session_id: str,
        alias: str,
        config: SessionConfig,
        parts: SessionParts,
        clock: Clock,
        *,
        session_limits: SessionLimits,
        limits: RuntimeLimits,
        lost: Lost | None = None,
        lease: LeaseLimits | None = None,
        ids: Ids = system_ids,
        tokens: Tokens = system_tokens,
    ) -> Session:
        """Open the backend, then start. On failure or cancellation the backend is closed again."""
        record = parts.record or SessionRecord()
        config = record.config or config
        try:
            if not await bounded(parts.backend.open(config), clock.sleep(limits.open_s)):
                raise EngineUnavailable(
                    f"the backend did not open within {limits.open_s:g} s",
                    code="timeout",
                    retry_after_s=5.0,
                )
            core = SessionCore(
                session_id,
                config,
                parts.backend.capabilities(),
                session_limits,
                ids,
                tokens,
                Lease(lease or LeaseLimits(), clock.now()),
                begun=record.next_fence,
                lines=record.lines,
                former=record.seat,
            )
        except BaseException:
            try:
                await bounded(parts.backend.close("open_abandoned"), clock.sleep(limits.deadlines.close_s))
            except Exception:
                _log.exception("session %s: its backend did not close after a failed open", session_id)
            raise
        session = cls(session_id, alias, core, parts, clock, limits, ids, lost or Lost())
        session._carry_out(core.opened())
        session._tasks = [
            asyncio.create_task(work, name=f"{name}:{session_id}")
            for name, work in (
                ("worker", session._guard(session._work())),
                ("lane", session._guard(session._calls.run())),
                ("pump", session._guard(session._pump())),
            )
        ]
        return session

    # --- what transports call ---------------------------------------------------------------------------

    @property
    def config(self) -> SessionConfig:
        return self._core.config

    @property
    def is_open(self) -> bool:
        """Commands are still taken."""
        return self._core.state.is_open and not self._closing

    @property
    def busy(self) -> bool:
        """Somebody waits for an answer, or commands wait to be executed."""
        return bool(self._waiters or self._mailbox or not self._calls.idle)

    @property
    def attached(self) -> bool:
        """A socket of its own is attached."""
        return self._core.attached

    async def submit(self, command: AnyCommand) -> None:
        """Queue a command. A refusal at the door is raised; a later one becomes an error event."""
        self._enqueue(command)

    async def perform(self, command: AnyCommand, timeout_s: float) -> None:
        """Queue a command and wait until it was carried out; its refusal is raised here."""
        self._core.driven()
        try:
            with self._waiters.performing(command) as carried_out:
                if self._enqueue(command):
                    await self._waiters.within(carried_out, timeout_s)
        finally:
            self._stirred()

    async def operation(self, command: OperationCommand, timeout_s: float) -> Outcome:
        """Queue an append or a query and wait for the tick that answers it.

        The same operation id again waits for, or gets, the same answer. A tick that failed is an outcome
        with ``error_code``; a refused command raises.
        """
        self._core.driven()
        if (known := self._core.outcome(command.operation_id)) is not None:
            return known
        try:
            with self._waiters.answer_to(command.operation_id) as answer:
                self._enqueue(command)
                return await self._waiters.within(answer, timeout_s)
        finally:
            self._stirred()

    def events(self, maxsize: int = 256) -> Subscription:
        """Everything emitted from now on, for one reader. Close it when done."""
        subscription = Subscription(maxsize, self._subscriptions.discard, self._lost)
        if self._epilogue is not None:
            subscription.close("session_closed")
        else:
            self._subscriptions.add(subscription)
        return subscription

    def attach(self) -> Attachment:
        """Seat the socket that opened the session."""
        self.untouched = False
        ticket, effects = self._core.attach(self._clock.now())
        attachment = Attachment(self._core, self._clock, ticket, (), self._receive, self._leave)
        self._attachments.add(attachment)
        self._carry_out(effects)
        return attachment

    def resume(self, token: Any, after: Any) -> Attachment | None:
        """Seat a socket that presents a resume or attach token and the number of the last event it has.

        ``None``: those events are gone, it must resynchronise; nothing changed. Raises
        ``invalid_session_resume``, ``session_resume_expired``, ``unsupported_session_resume``,
        ``invalid_resume_token`` or ``session_resume_conflict``.
        """
        resumed = self._core.resume(self._clock.now(), token, after)
        if resumed.ticket is None or resumed.missed is None:
            return None
        attachment = Attachment(
            self._core,
            self._clock,
            resumed.ticket,
            resumed.missed,
            self._receive,
            self._leave,
            gap=resumed.gap,
        )
        for other in self._attachments:
            other.wake()
        self._attachments.add(attachment)
        self._carry_out(resumed.effects)
        return attachment

    def invite(self) -> Invitation:
        """A token with which one more socket may join; it is shown once."""
        self.untouched = False
        return self._core.invite()

    async def seated(self) -> None:
        """Return when a new socket can be sure of its seat: a later process knows of it. Raises what the log
        does."""
        await self._facts.flush()

    def view(self) -> dict[str, Any]:
        """The session object of the wire."""
        return self._core.view()

    def tick(self) -> None:
        """Time has passed: expire, or go on with what waited for it."""
        busy = self.busy
        self._guarded(lambda: self._core.tick(self._clock.now(), busy=busy))

    async def close(self, reason: str) -> None:
        """End the session; returns when the client has been told. Idempotent."""
        if not self._closing:
            self._closing = True
            self._enqueue(Close(reason))
        await self.closed.wait()

    async def quiet(self) -> None:
        """Return when nothing is asked of the session any more and nothing is being answered."""
        while self.is_open and (self.busy or self._core.answering):
            self._changed.clear()
            await self._changed.wait()

    async def release(self) -> bool:
        """Try again to close a backend whose close failed; True when its slot is free."""
        if not self.released:
            try:
                self.released = await bounded(
                    self._backend.close("request_cleanup"),
                    self._clock.sleep(self._limits.deadlines.close_s),
                )
            except Exception:
                _log.exception("clean-up of session %s failed", self.id)
        return self.released

    def statistics(self) -> dict[str, object]:
        return {
            **self._core.statistics(),
            "mailbox": len(self._mailbox),
            "mailbox_limit": self._limits.mailbox,
            "calls": self._calls.depth,
            "waiters": len(self._waiters),
            "subscriptions": [s.statistics() for s in self._subscriptions],
            "released": self.released,
        }

    def _receive(self, command: wire.AnyCommand) -> None:
        """A command from the attached socket; whatever is wrong with it becomes an error event."""
        try:
            commands = self._intake.commands(command, self._clock.now())
            if isinstance(command, wire.EventAck):
                self._feed(commands[0])  # the transport's own: it waits behind nothing
            elif len(commands) == 1:
                self._enqueue(commands[0])
                self._intake.expect(commands[0])
            else:
                self._enqueue_together(commands, command.event_id)
        except VigilError as refused:
            # By no other name of this frame: it holds the frame, and each refusal would be a cycle.
            self._guarded(partial(self._core.tell, refused))
        except Exception as error:
            if self._core.state.is_open:  # an end in order goes on
                self._fault(error)

    def _leave(self, attachment: Attachment) -> None:
        """A socket is gone."""
        self._attachments.discard(attachment)
        self._guarded(lambda: self._core.detach(self._clock.now(), attachment.generation))

    # --- mailbox ----------------------------------------------------------------------------------------

    def _enqueue(self, command: AnyCommand) -> bool:
        """Admit and queue. False: there is nothing to do (a known operation, a repeated close)."""
        # The one close of ``close`` always finds a place.
        queued = self._mailbox.put(command, always=self._closing and isinstance(command, Close))
        if queued is None:
            return False
        self._seen(command)
        if queued.interrupting:
            self._calls.interrupt(closing=isinstance(command, Close))
        if (thinned := self._mailbox.thinned()) is not None:
            self._guarded(lambda: self._core.thin(self._clock.now(), thinned))
        self._stirred()
        return True

    def _enqueue_together(self, commands: list[AnyCommand], event_id: str | None) -> None:
        """Queue all that one event of a client asks for, or nothing of it. None of it interrupts."""
        for each in self._mailbox.put_together(commands, event_id):
            self._seen(each)
        self._stirred()

    def _seen(self, command: AnyCommand) -> None:
        """The session's media clock goes by every frame that is taken, by whichever door."""
        shown = [command] if isinstance(command, AppendInput) else []
        if isinstance(command, CreateItem):
            shown.extend(command.pictures)
        times = [frame.media_time_ms for append in shown for frame in append.unit.frames]
        self.media_clock.seen(times, self._clock.now() * 1000)

    def _check_room(self, size: int) -> None:
        """Refuse media before it becomes a part of the client's stream."""
        self._mailbox.check()
        self._core.check_room(size)

    def _stirred(self) -> None:
        """Something has changed. Most of it is none of the worker's business, which sleeps on."""
        self._changed.set()
        if self._mailbox:
            self._due.set()

    async def _work(self) -> None:
        while True:
            while not self._mailbox or not (self._calls.idle or isinstance(self._mailbox.next, IMMEDIATE)):
                self._due.clear()
                await self._due.wait()
            command, interrupting = self._mailbox.pop()
            self._feed(command)
            if interrupting:
                self._calls.settle()
            self._stirred()

    async def _pump(self) -> None:
        try:
            async for output in self._backend.outputs():
                while self._calls.depth >= self._limits.lane and self._core.state.is_open:
                    self._changed.clear()
                    await self._changed.wait()
                self._feed(output)
                if isinstance(output, Closed):
                    return
        finally:
            self._read_out.set()
        if self._core.state.is_open:
            raise ServerFault("the backend's outputs ended while the session was open")

    def _on_carried(self, carried: Carried) -> None:
        if isinstance(carried.effect, BackendClose):
            self.released = carried.error is None
        self._feed(carried)
        self._stirred()

    # --- effects ----------------------------------------------------------------------------------------

    def _feed(self, item: AnyCommand | Carried | BackendOutput) -> None:
        self._guarded(lambda: self._core.handle(self._clock.now(), item))

    def _guarded(self, step: Callable[[], tuple[Effect, ...]]) -> None:
        """One step of the core and what follows from it; whatever raises ends this session alone."""
        try:
            self._carry_out(step())
        except Exception as error:
            self._fault(error)
        self._stirred()
        if self._core.waiting or not self._core.state.is_open:
            self._wake_writers()
        if self._core.state is State.CLOSED:
            self._finish(Conflict("the session is closed; open a new one", code="session_closed"))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Emit(event=event):
                    self._offer(event)
                case Record(fact=fact):
                    self._facts.append(fact.kind, fact.data())
                case Answered(outcome=outcome):
                    self._waiters.answered(outcome)
                case Dropped(operation_id=operation_id, error=error):
                    self._waiters.dropped(operation_id, error)
                case Completed(command=command):
                    self._intake.judged(command, self._core.config)
                    self._waiters.performed(command)
                case Reject(error=error, command=command, told=told):
                    self._intake.judged(command, self._core.config)
                    if not self._waiters.refused(command, error) and told is not None:
                        self._carry_out(self._core.tell(told))
                case BackendEffect():
                    self._calls.queue(effect)

    def _offer(self, event: Event) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.offer(event)

    def _wake_writers(self) -> None:
        for attachment in self._attachments:
            attachment.wake()

    # --- faults and the end -----------------------------------------------------------------------------

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if self._core.state.is_open:
                self._fault(error)
            else:
                _log.exception("session %s: fault while closing", self.id)

    def _fault(self, cause: Exception) -> None:
        """End this session because of ``cause``; the wall between it and all others."""
        _log.error("session %s: fault", self.id, exc_info=cause)
        error = cause if isinstance(cause, VigilError) else ServerFault("internal error; the session ends")
        if self._faulted or not self._core.state.is_open:
            # The core cannot end in order any more: tell the client, and let the registry clean up.
            self._carry_out(self._core.abandon(self._clock.now(), error))
            self._wake_writers()
            self._finish(error)
            return
        self._faulted = True
        self._feed(Close("internal_error", error))

    def _finish(self, error: VigilError) -> None:
        """Wake everyone who waits, stop the tasks, make the log durable, then set ``closed``."""
        if self._epilogue is not None:
            return
        self._waiters.fail_all(error)
        self._mailbox.clear()
        for subscription in tuple(self._subscriptions):
            subscription.close("session_closed")
        self._stirred()
        self._epilogue = asyncio.create_task(self._end(), name=f"epilogue:{self.id}")

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=CANCEL_WAIT_S)
        try:
            await bounded(self._facts.flush(), self._clock.sleep(self._limits.flush_s))
        except Exception:
            _log.exception("session %s: its last facts may not be durable", self.id)
        self.closed.set()
