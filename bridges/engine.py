"""The engine seam: what a chat request to an OpenAI-compatible engine is, and how it can fail.

::

    EngineError                 code, message
    |- EngineUnreachable        no connection, or it broke before the first byte
    |- EngineTimeout            a deadline passed; ``stage``: first_token or total
    |- EngineBroken             the stream broke after the first delta; ``text`` is what had come
    |- EngineRefused            4xx that a retry cannot mend
    |  |- ContextOverflow       the prompt is longer than the context
    |  |- TooManyImages         ``limit``: images one prompt may hold
    |  |- BadImage              the engine could not decode an image
    |  |- EngineDenied          401, 403, 404, 405: whoever is there does not serve us, whatever we ask
    |  `- ImageMissing          ``uuid``: the engine needs its bytes and nobody has them any more
    `- EngineServerError        5xx after the retry with payloads
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class EngineError(Exception):
    code = "engine_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class EngineUnreachable(EngineError):
    code = "engine_unreachable"


class EngineTimeout(EngineError):
    code = "engine_timeout"

    def __init__(self, message: str, stage: str) -> None:
        super().__init__(message)
        self.stage = stage


class EngineBroken(EngineError):
    code = "engine_broken"

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class EngineRefused(EngineError):
    code = "engine_refused"


class ContextOverflow(EngineRefused):
    code = "context_overflow"


class TooManyImages(EngineRefused):
    code = "too_many_images"

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class BadImage(EngineRefused):
    code = "bad_image"


class EngineDenied(EngineRefused):
    """Another model is served there, another key is wanted, or it is no engine at all."""

    code = "engine_denied"


class ImageMissing(EngineRefused):
    code = "image_missing"

    def __init__(self, message: str, uuid: str) -> None:
        super().__init__(message)
        self.uuid = uuid


class EngineServerError(EngineError):
    code = "engine_server_error"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds on the monotonic clock: until the first token, and for the whole request."""

    first_token_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """A message as JSON text.

    :param json: with null for every picture that has an identity; :param uuids: of those, in order
    :param least: a lower bound of its tokens, in sixteenths: no tokenizer goes below on real text
    """

    message: Mapping[str, Any]
    json: bytes
    uuids: tuple[str, ...]
    least: int


class Window:
    """A prompt that grows from request to request: what is in it stays the same, and the same objects.

    Whoever asks keeps it. ``written``: the messages of the last request, so that only new ones are written.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.written: list[WrittenMessage] = []


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat completion.

    :param messages: OpenAI messages; an image part is ``{"type": "image_url", "uuid": U}`` without data:
        the bridge adds the bytes of ``U`` when the engine does not have them yet
    :param params: sampling and vLLM extras, merged into the body as they are
    :param deadlines: both are enforced
    :param session: key of the session, for engines behind a router that pins by header
    :param window: requests of one window grow from one another: their prompt may go as token ids
    :param traceparent: the trace that the engine goes on with, as W3C Trace Context writes it
    :param purpose: what it is for (``decision 12``, ``summary 3/1``), for whoever records it; never sent
    :param behind_s: requests that are sent within so many seconds may go first
    """

    messages: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any]
    deadlines: Deadlines
    session: str | None = None
    purpose: str = ""
    window: Window | None = None
    traceparent: str | None = None
    behind_s: float = 0.0

    @property
    def window_name(self) -> str:
        """Empty for a request of no window."""
        return self.window.name if self.window is not None else ""


@dataclass(frozen=True, slots=True)
class Delta:
    """Generated text as it streams; whole characters only. ``token_ids`` when the request asked for them.

    ``top_logprobs``: one mapping token-id -> raw logprob per token of this delta, when asked for.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    top_logprobs: tuple[Mapping[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a stream.

    :param prompt_tokens: as counted by the engine
    :param cached_tokens: ``None`` where the engine does not report them
    :param body_bytes: bytes of all request bodies of this answer, retries included
    :param retries: how often the request was sent again (payload fallback)
    :param ttft_ms: from request written to first token, monotonic
    :param total_ms: from request written to stream end
    :param stop_token_id: the stop token that ended the answer and whose text the engine stripped
    :param token_times_ms: arrival of each delta relative to the request, for inter-token figures
    :param suspect: the engine counted fewer prompt tokens than the messages can have: it lost the prompt
    :param path: how the prompt went: as ids by ``content_parts`` or ``features``, else as messages, with
        ``uuids`` in place of pictures that had gone before, or with all ``payloads``
    :param fallback: what spoke against ids where they were tried
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    body_bytes: int
    retries: int
    ttft_ms: float
    total_ms: float
    stop_token_id: int | None = None
    token_times_ms: tuple[float, ...] = field(default=())
    suspect: bool = False
    path: str = ""
    fallback: str | None = None


ChatEvent = Delta | Finished
ImageBytes = Callable[[str], bytes]
"""Encoded bytes of a frame by uuid; raises ``KeyError`` when they are gone."""


class ChatEngine(Protocol):
    """A stateless engine. ``chat`` may be called concurrently; closing the iterator aborts the request."""

    def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]: ...

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        """Exact prompt tokens of a request, from the engine itself."""

    async def ping(self, timeout_s: float) -> bool:
        """True when a real one-token request was answered in time."""

    async def aclose(self) -> None: ...
