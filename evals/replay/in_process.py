"""Drives the session core in this process: the same registry, actor and backend as ``vigil serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from evals.replay.core import open_local, sampling_of
from evals.replay.drive import PATIENCE_S, Frame, Sampling, Sink
from evals.replay.options import ReplayError
from orchestrator.app import Core
from orchestrator.engine_setup import Engine
from orchestrator.exits import Exit
from orchestrator.runtime.actor import Session
from orchestrator.runtime.subscription import Subscription
from orchestrator.session.commands import AppendInput, AskQuery, ClearQuery
from orchestrator.session.events import (
    DelegationEvent,
    ErrorEvent,
    Event,
    NoticeEvent,
    OutputTextDelta,
    TickEvent,
)
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.settings import Settings
from orchestrator.wire.errors import EngineUnavailable, InvalidRequest, VigilError

EVENTS = 4096
"""Events that may wait for us; we read at once, so only a stall of the whole loop could fill it."""


class SessionDrive:
    """One session of a core.

    :param core: open; not closed here
    :param engine: running and checked, the one behind the core
    :param name: of the session; default: none
    """

    transport = "in_process"

    def __init__(self, core: Core, engine: Engine, name: str | None = None) -> None:
        self._core = core
        self._engine = engine
        self._name = name
        self._session: Session | None = None
        self._sink: Sink | None = None
        self._reading: asyncio.Task[None] | None = None
        self._told = asyncio.Condition()
        self._last_tick = -1
        self._decided = 0
        self._questions: set[str] = set()
        """Delegated and not answered, by id."""
        self._over = False
        self._fault: ReplayError | None = None
        self._operations = 0

    async def prepare(self) -> Sampling:
        return sampling_of(self._engine)

    def engine_facts(self) -> Mapping[str, Any]:
        facts = {"url": self._engine.url, "family": self._engine.pack.family}
        return facts | self._engine.facts.to_dict()

    async def open(self, sink: Sink) -> None:
        try:
            self._session = await self._core.open_session(self._core.defaults, self._name)
        except VigilError as error:
            raise _ended(error) from error
        self._sink = sink
        self._reading = asyncio.create_task(self._read(self._session.events(EVENTS)))

    async def ask(self, text: str) -> None:
        await self._submit(AskQuery(text=text, operation_id=self._operation("query")))

    async def withdraw(self) -> None:
        await self._submit(ClearQuery())

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        assert self._session is not None, "open comes first"
        picture = FrameInput(data=frame.data, media_time_ms=frame.media_time_ms)
        unit = InputUnit(frames=(picture,), lossless=lossless)
        command = AppendInput(operation_id=self._operation("frame"), unit=unit)
        before = self._decided
        try:
            outcome = await self._session.operation(command, PATIENCE_S)
            # A failed tick leaves its frame in the open turn. A live stream goes on to its next frame; a file
            # waits for the tick that decides this one, so that nothing piles up behind a dead engine.
            if outcome.error_code is None:
                await self._until(lambda: self._last_tick >= outcome.record["tick"])
            elif lossless:
                await self._until(lambda: self._decided > before)
        except VigilError as error:
            raise _ended(error) from error
        except TimeoutError:
            at_s = frame.media_time_ms / 1000
            message = f"the frame at {at_s:g} s was not decided on within {PATIENCE_S:g} s"
            raise ReplayError(Exit.ENGINE_UNREACHABLE, "engine_lost", message) from None

    async def settle(self) -> None:
        waited = frozenset(self._questions)
        if not waited:
            return
        # A pause too long for any of them ends the wait, not the run.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._core.settings.delegation.deadline_s):
                await self._until(lambda: not waited & self._questions)
                before = self._last_tick
                await self._until(lambda: self._last_tick > before)

    async def close(self) -> None:
        if self._session is not None:
            with suppress(VigilError):
                await self._session.close("client_close")
        if self._reading is not None:
            # Ends by itself with the session's last event: all that was decided has then been told.
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _submit(self, command: AskQuery | ClearQuery) -> None:
        assert self._session is not None, "open comes first"
        try:
            await self._session.submit(command)
        except VigilError as error:
            raise _ended(error) from error

    def _operation(self, kind: str) -> str:
        self._operations += 1
        return f"{kind}-{self._operations}"

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until the reader has told enough; raises what ended the session meanwhile."""
        async with asyncio.timeout(PATIENCE_S), self._told:
            await self._told.wait_for(lambda: holds() or self._over)
        if not holds():
            raise self._fault or ReplayError(
                Exit.FAILED, "session_closed", "the session ended before the source"
            )

    async def _read(self, events: Subscription) -> None:
        """Tell the sink of every event, in order, until the session's last."""
        try:
            async for event in events:
                self._tell(event)
                async with self._told:
                    self._told.notify_all()
        finally:
            self._over = True
            async with self._told:
                self._told.notify_all()

    def _tell(self, event: Event) -> None:
        assert self._sink is not None
        match event:
            case OutputTextDelta(delta=delta):
                self._sink.delta(delta)
            case TickEvent(record={"status": "dropped"} as record):
                # No tick: input that no tick will show, a frame the engine refuses for one.
                self._sink.notice("input_dropped", str(record.get("reason")))
            case TickEvent(record=record, error_code=error_code):
                self._sink.tick(record)
                self._last_tick = int(record["tick"])
                self._decided += error_code is None
            case NoticeEvent(code=code, message=message):
                self._sink.notice(code, message)
            case DelegationEvent(status="started", delegation_id=delegation_id):
                self._questions.add(delegation_id)
            case DelegationEvent(error="no_solver"):
                pass  # delegation is off: the question is in its tick's row
            case DelegationEvent(status="completed" | "failed" | "cancelled" as status, question=question):
                self._questions.discard(event.delegation_id)
                said = event.text or event.error
                self._sink.notice(f"delegation_{status}", f"{question}: {said}" if said else question)
            case ErrorEvent(error=error):
                self._fault = _ended(error)
                self._sink.notice(error.code, error.message)
            case _:
                pass


class InProcessDrive:
    """One session of a core of its own.

    :param engine: running and checked; not stopped here
    """

    transport = SessionDrive.transport

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._core: Core | None = None
        self._drive: SessionDrive | None = None
        self._watching: asyncio.Task[None] | None = None

    async def prepare(self) -> Sampling:
        self._core = await open_local(self._settings, self._engine)
        self._watching = asyncio.create_task(self._core.track.watch())
        self._drive = SessionDrive(self._core, self._engine)
        return await self._drive.prepare()

    def engine_facts(self) -> Mapping[str, Any]:
        return self._session.engine_facts()

    async def open(self, sink: Sink) -> None:
        await self._session.open(sink)

    async def ask(self, text: str) -> None:
        await self._session.ask(text)

    async def withdraw(self) -> None:
        await self._session.withdraw()

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        await self._session.show(frame, lossless=lossless)

    async def settle(self) -> None:
        await self._session.settle()

    async def close(self) -> None:
        core, self._core = self._core, None
        if self._drive is not None:
            await self._drive.close()
        if core is not None:
            await core.aclose()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    @property
    def _session(self) -> SessionDrive:
        assert self._drive is not None, "prepare comes first"
        return self._drive


def _ended(error: VigilError) -> ReplayError:
    """What an error of the core means for the run."""
    if error.code == "model_not_found":
        return ReplayError(Exit.MODEL_MISSING, error.code, error.message)
    if isinstance(error, EngineUnavailable):
        return ReplayError(Exit.ENGINE_UNREACHABLE, error.code, error.message)
    if isinstance(error, InvalidRequest):
        return ReplayError(Exit.USAGE, error.code, error.message)
    return ReplayError(Exit.FAILED, error.code, error.message)
