"""Requests of the token route: what has to be asked of the engine before, and the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bridges.chat_http import CHAT, Call, ChatHttp, numbers_of
from bridges.deadline import DeadlineWatch
from bridges.engine import (
    BadImage,
    ChatRequest,
    ContextOverflow,
    EngineError,
    EngineRefused,
    EngineServerError,
    ImageBytes,
    ImageMissing,
    TooManyImages,
)
from bridges.engine_errors import ImageNotHeld
from bridges.image_ledger import ImageLedger, bytes_of, render
from bridges.token_prompt import Mismatch, TokenPrompt, TokenPrompts
from bridges.token_route import GENERATE, Untranslatable, collapsed, content_parts, features

FAULTS = (Mismatch, EngineRefused, EngineServerError)
"""After these a prompt can still go as messages."""
_BY_ANY_PATH = (ContextOverflow, TooManyImages, BadImage, ImageMissing, ImageNotHeld)
_BESIDE = ("cache_salt", "priority")


def why(fault: Exception) -> str:
    """Why a prompt did not go as ids, in a word."""
    match fault:
        case ImageNotHeld():
            return "evicted"
        case EngineError():
            return fault.code
        case _:
            return "untranslatable" if isinstance(fault, Untranslatable) else "mismatch"


def to_blame(fault: Exception) -> bool:
    """Whether the path failed, and not the request or the engine's memory."""
    return not isinstance(fault, _BY_ANY_PATH)


@dataclass(frozen=True, slots=True)
class ByIds:
    """A chat request in token ids."""

    request: ChatRequest
    prompts: TokenPrompts
    params: Mapping[str, Any]
    prompt: TokenPrompt

    def counted(self, tokens: int) -> None:
        """The engine's count of the prompt. :raises Mismatch: it read another one"""
        self.prompts.counted(self.request.window_name, self.prompt, tokens)


class IdCalls:
    """:param ledger: the pictures that the engine holds"""

    def __init__(self, http: ChatHttp, model: str, ledger: ImageLedger) -> None:
        self._http = http
        self._model = model
        self._ledger = ledger

    async def asked(self, request: ChatRequest, prompts: TokenPrompts, watch: DeadlineWatch) -> ByIds:
        """:raises Untranslatable: it can't be said in ids
        :raises Mismatch: the engine's ids don't add up
        """
        params = prompts.route.params(request.params)

        async def tokenize(body: Mapping[str, Any]) -> list[int]:
            return await self._tokenize(body, watch)

        window = request.window_name
        prompt = await prompts.prompt(window, request.messages, request.params, tokenize)
        return ByIds(request, prompts, params, prompt)

    async def call(self, asked: ByIds, images: ImageBytes, watch: DeadlineWatch) -> Call:
        """Where every picture must be registered, those that are not are shown to the engine before."""
        route, prompt = asked.prompts.route, asked.prompt
        if route.kind == "features":
            lengths = await self._registered(asked, images, watch)
            said = features(prompt.pieces, prompt.images, lengths, route.pad)
        else:
            held = self._ledger
            parts = [(uuid, None if uuid in held else bytes_of(uuid, images)) for uuid in prompt.images]
            said = content_parts(prompt.pieces, parts, route.pad)
        body = {
            "model": self._model,
            **said,
            **asked.params,
            "output_mode": "text",
            "stream": True,
            # Counted with every chunk: an answer to another prompt is known before anybody reads of it.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return Call(GENERATE, orjson.dumps(body), prompt.images, prompt.least)

    async def learn(
        self, request: ChatRequest, prompts: TokenPrompts, ids: list[int], watch: DeadlineWatch
    ) -> None:
        """``ids``: of the prompt of a chat answer. :raises Mismatch: they can't be"""

        async def tokenize(body: Mapping[str, Any]) -> list[int]:
            return await self._tokenize(body, watch)

        await prompts.begin(request.window_name, request.messages, request.params, ids, tokenize)

    async def _tokenize(self, body: Mapping[str, Any], watch: DeadlineWatch) -> list[int]:
        """What the engine makes of messages without pictures."""
        told = await self._http.json("/tokenize", {"model": self._model, **body}, watch)
        return numbers_of(told, "tokens")

    async def _registered(self, asked: ByIds, images: ImageBytes, watch: DeadlineWatch) -> tuple[int, ...]:
        """The tokens of every picture, each of which the engine holds then.

        :raises Mismatch: not every picture became one run of pads
        """
        prompt, held = asked.prompt, self._ledger
        known = dict(zip(prompt.images, prompt.lengths, strict=True))
        new = [uuid for uuid, length in known.items() if not length or uuid not in held]
        if new:
            message = {"role": "user", "content": [{"type": "image_url", "uuid": uuid} for uuid in new]}
            beside = {name: value for name, value in asked.params.items() if name in _BESIDE}
            body = {
                "model": self._model,
                "messages": render([message], images, None).messages,
                "max_tokens": 1,
                "return_token_ids": True,
                **beside,
            }
            told = await self._http.json(CHAT, body, watch, asked.request)
            _, lengths = collapsed(numbers_of(told, "prompt_token_ids"), asked.prompts.route.pad)
            if len(lengths) != len(new):
                raise Mismatch(f"{len(new)} pictures shown, {len(lengths)} runs of pads")
            held.sent(new)
            measured = dict(zip(new, lengths, strict=True))
            asked.prompts.measured(asked.request.window_name, measured)
            known |= measured
        return tuple(known[uuid] for uuid in prompt.images)
