"""One chat-completions request against a session: input in, one answer out, words as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from orchestrator.api.chat_reply import ReplyHead, Timing, completion
from orchestrator.api.chat_request import ChatRequest
from orchestrator.api.context import ApiContext
from orchestrator.api.errors import tick_error
from orchestrator.api.exchange import Exchange, OnText
from orchestrator.api.images import image_bytes
from orchestrator.api.personas import PersonaChoice, choose_persona
from orchestrator.runtime.actor import Session
from orchestrator.runtime.vocabulary import (
    Action,
    AppendInput,
    AskQuery,
    ClearQuery,
    Configure,
    FrameInput,
    InputUnit,
    OperationCommand,
    Outcome,
)
from orchestrator.wire.errors import Conflict, NotFound, ResourceExhausted, Unsupported, VigilError

_REPEATED = Outcome("", {"reason": "repeated_query"}, action=Action.SILENCE)
"""Answers a request whose text only repeats the standing query and that brings no frame."""


@dataclass(slots=True)
class Traffic:
    """What the HTTP side remembers of a session between requests.

    :param asks_again: the last request had no text, so the standing query's text asks anew
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asks_again: bool = False
    in_work: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole completion, and the client's name of the session it came from."""

    alias: str
    body: dict[str, Any]
    text: str

    @property
    def head(self) -> ReplyHead:
        return ReplyHead(self.body["id"], self.body["model"], self.body["created"])


class Chat:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._traffic: WeakKeyDictionary[Session, Traffic] = WeakKeyDictionary()
        self._work: set[asyncio.Task[Answer]] = set()

    def begin(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Run work that goes on when the client who asked for it is gone."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work_done)
        return task

    def _work_done(self, task: asyncio.Task[Answer]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, in case the client is gone

    async def answer(
        self,
        tenant: str,
        alias: str,
        request: ChatRequest,
        input_id: str,
        head: ReplyHead,
        on_text: OnText | None = None,
        *,
        retry: bool = False,
    ) -> Answer:
        """Hand over the request's input and wait for the tick that answers it.

        :param alias: the client's name of its session, or one that was minted for it
        :param input_id: id of this input; frames that come with the same id again are the same frames
        :param on_text: told of words as they stream
        :param retry: this request failed before; its query may have been taken
        :raises VigilError: nothing was answered; input that was taken already rides the next tick
        """
        context = self._context
        began = context.clock.now()
        self.check_over_http()
        choice = choose_persona(request.persona_key, context.personas, context.languages)
        images = [
            await image_bytes(frame.url, context.limits.frame_bytes, context.fetch_image, "messages")
            for frame in request.frames
        ]
        async with self.begun(tenant, alias, choice) as session:
            traffic = self._traffic_of(session)
            if traffic.in_work >= context.limits.requests_per_session:
                raise ResourceExhausted(
                    f"{traffic.in_work} requests of this session are in work; wait for an answer",
                    code="input_backpressure",
                    retry_after_s=context.period_ms / 1000,
                )
            traffic.in_work += 1
            try:
                async with traffic.lock:
                    check_unattached(session)
                    await self._configure(session, choice)
                    check_unattached(session)  # one may have come meanwhile
                    times = self._media_times(session, [frame.media_time_ms for frame in request.frames])
                    new = request.query_new or traffic.asks_again
                    commands = self._commands(session, request, input_id, images, times, new and not retry)
                    traffic.asks_again = request.text is None
                    handed_over = context.clock.now()
                    exchange = Exchange(session, commands, context.ticks, on_text, context.limits.request_s)
                outcome = await exchange.outcome() if commands else _REPEATED
            finally:
                traffic.in_work -= 1
        now = context.clock.now()
        if outcome.error_code is not None:
            raise tick_error(outcome.error_code)
        timing = Timing(
            total_ms=(now - began) * 1000,
            before_ms=(handed_over - began) * 1000,
            waited_ms=(now - handed_over) * 1000,
        )
        memory = context.memory_of(session.id)
        body = completion(head, session.alias, session.id, outcome, memory, timing)
        return Answer(session.alias, body, outcome.text)

    def check_over_http(self) -> None:
        """Refuse what a session of this model can't be asked by a single request."""
        if not self._context.over_http:
            raise Unsupported(
                f"sessions with {self._context.model} are live streams; open one over /v1/realtime",
                code="realtime_only",
            )

    async def open(self, tenant: str, alias: str, choice: PersonaChoice) -> Session:
        """The alias's session, or a new one that begins with this persona. Over HTTP nothing is spoken."""
        self.check_over_http()
        config = choice.applied_to(replace(self._context.defaults, modalities=("text",)))
        return await self._context.registry.resolve(tenant, alias, config)

    @asynccontextmanager
    async def begun(self, tenant: str, alias: str, choice: PersonaChoice) -> AsyncIterator[Session]:
        """The alias's session for what a request does with it. One that the request began and, failing, left
        with nothing is removed again: it would hold a place until it has been idle for long enough."""
        context = self._context
        began = context.registry.owned(tenant, alias) is None
        session = await self.open(tenant, alias, choice)
        try:
            yield session
        except BaseException:
            memory = context.memory_of(session.id)
            nothing = memory.frames == 0 and memory.query is None and not context.sources.of(session)
            if began and nothing and session.untouched and session.is_open and not session.busy:
                with suppress(VigilError):
                    await asyncio.shield(context.sessions.delete(tenant, session.id))
            raise

    def existing(self, tenant: str, alias: str) -> Session:
        """By the client's name or by its id."""
        session = self._context.registry.owned(tenant, alias)
        if session is None:
            raise NotFound(
                f"there is no session {alias}; it begins with its first frame or query",
                code="unknown_session",
            )
        return session

    async def set_persona(self, session: Session, choice: PersonaChoice) -> None:
        async with self._traffic_of(session).lock:
            check_unattached(session)
            await self._configure(session, choice)

    async def ask(self, session: Session, text: str, *, new: bool) -> None:
        """Set or replace the standing query; the answer comes with a frame's request or as an event."""
        self.check_over_http()
        check_unattached(session)
        command = AskQuery(text, self._context.ids("query"), repeat_ok=new)
        await session.perform(command, self._context.limits.request_s)
        self._traffic_of(session).asks_again = False

    async def clear(self, session: Session) -> None:
        check_unattached(session)
        await session.perform(ClearQuery(), self._context.limits.request_s)
        self._traffic_of(session).asks_again = True

    def check_model(self, model: str | None) -> None:
        if model is not None and model != self._context.model:
            raise NotFound(
                f"this server serves {self._context.model}, not {model}",
                code="model_not_found",
                param="model",
            )

    def new_head(self, input_id: str) -> ReplyHead:
        """The id belongs to the input, so that a repeated request repeats it too."""
        now = self._context.clock.wall_ms() // 1000
        return ReplyHead(f"chatcmpl-{input_id.rpartition('_')[2]}", self._context.model, now)

    # --- one request ------------------------------------------------------------------------------------

    def _traffic_of(self, session: Session) -> Traffic:
        return self._traffic.setdefault(session, Traffic())

    async def _configure(self, session: Session, choice: PersonaChoice) -> None:
        wanted = choice.applied_to(session.config)
        if wanted != session.config:
            await session.perform(Configure(wanted), self._context.limits.request_s)

    def _media_times(self, session: Session, given: list[int | None]) -> list[int]:
        """Capture times; a frame without one is dated by its arrival, the first of a session being 0.

        A session may begin in the middle of a film: its first frames are taken at their word.
        """
        if not given:
            return []
        now_ms = self._context.clock.now() * 1000
        arrival, step = round(session.media_clock.now_ms(now_ms)), self._context.period_ms // len(given)
        times = [time if time is not None else arrival + i * step for i, time in enumerate(given)]
        if session.media_clock.begun:
            session.media_clock.check(times, now_ms, "frame_time_range")
        return times

    def _commands(
        self,
        session: Session,
        request: ChatRequest,
        input_id: str,
        images: list[bytes],
        times: list[int],
        new: bool,
    ) -> list[OperationCommand]:
        """The query first, so that it rides the tick of the frames that came with it.

        Text that equals the standing query only repeats it, unless it is asked anew.
        """
        commands: list[OperationCommand] = []
        if request.text is not None and (new or request.text != self._context.memory_of(session.id).query):
            commands.append(AskQuery(request.text, self._context.ids("query"), repeat_ok=new))
        frames = [
            FrameInput(data, time, f"{input_id}.{i}")
            for i, (data, time) in enumerate(zip(images, times, strict=True))
        ]
        size = self._context.frames_per_append
        for start in range(0, len(frames), size):
            unit = InputUnit(frames=tuple(frames[start : start + size]))
            commands.append(AppendInput(self._context.ids("append"), unit))
        return commands


def check_unattached(session: Session) -> None:
    """One writer at a time: what comes over HTTP is never mixed with what an attached socket sends."""
    if session.attached:
        raise Conflict(
            "a socket is attached to this session; write over it, or close it first", code="session_attached"
        )
