"""Reads the chunks of one streamed answer: of a chat completion (vLLM's flavour of the OpenAI format), or of
vLLM's token route.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from bridges.engine import Delta, EngineError, EngineServerError
from bridges.engine_errors import refusal
from bridges.sse import WholeCharacters

DONE = b"[DONE]"
_ID_PREFIX = "token_id:"
_MOST = 2**53


@dataclass(slots=True)
class ChatStream:
    """What has come so far. Feed event payloads to :meth:`take`.

    :param spelled: ids of tokens that logprobs name by text; others are named by ``token_id:N`` or drop out
    :param text: whole characters emitted so far
    :param tokens: generated tokens as far as deltas tell (their ids, else one a delta)
    """

    spelled: Mapping[str, int] = field(default_factory=dict)
    text: str = ""
    tokens: int = 0
    prompt_token_ids: list[int] | None = None
    accepted: bool = False
    done: bool = False
    finish_reason: str | None = None
    stop_token_id: int | None = None
    usage: Mapping[str, Any] | None = None
    _characters: WholeCharacters = field(default_factory=WholeCharacters)

    def take(self, payload: bytes) -> Delta | None:
        """The delta inside one event, if it brings text or tokens.

        :raises EngineError: the event is an error, or none of a completion
        """
        if payload == DONE:
            self.done = True
            return None
        chunk = _parse(payload)
        if "error" in chunk:
            raise _error(chunk["error"])
        try:
            return self._taken(chunk)
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as odd:
            raise EngineServerError(f"the engine streamed an event of an unknown shape: {odd}") from odd

    def _taken(self, chunk: Mapping[str, Any]) -> Delta | None:
        self.accepted = True
        if chunk.get("usage"):
            self.usage = _counts(chunk["usage"])
        if ids_of_prompt := chunk.get("prompt_token_ids"):
            self.prompt_token_ids = [_count(number) for number in ids_of_prompt]
        choices = chunk.get("choices")
        if not choices:
            return None
        choice = choices[0]
        if choice.get("finish_reason"):
            self.finish_reason = str(choice["finish_reason"])
            stop = choice.get("stop_reason")
            self.stop_token_id = stop if isinstance(stop, int) else None
        said = (choice.get("delta") or {}).get("content") or choice.get("text") or ""
        text = self._characters.feed(said)
        ids = tuple(_count(number) for number in choice.get("token_ids") or ())
        tops = self._tops(choice.get("logprobs"))
        if not text and not ids and not tops:
            return None
        self.text += text
        self.tokens += len(ids) or len(tops) or 1
        return Delta(text, ids, tops)

    def _tops(self, logprobs: Mapping[str, Any] | None) -> tuple[Mapping[int, float], ...]:
        """One mapping a token. Texts of tokens that nobody has spelled are ambiguous and drop out."""
        if not logprobs or not logprobs.get("content"):
            return ()
        return tuple(
            {
                number: float(top["logprob"])
                for top in token.get("top_logprobs") or ()
                if (number := self._id_of(top["token"])) is not None
            }
            for token in logprobs["content"]
        )

    def _id_of(self, token: str) -> int | None:
        if token.startswith(_ID_PREFIX):
            return int(token[len(_ID_PREFIX) :])
        return self.spelled.get(token)

    @property
    def whole(self) -> bool:
        """The stream ended as it should."""
        return self.finish_reason is not None and (self.done or self.usage is not None)

    @property
    def cached_tokens(self) -> int | None:
        return (self.usage or {}).get("cached_tokens")


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine counted, as far as it did."""
    details = usage.get("prompt_tokens_details") or {}
    counted = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens"),
    }
    return {"prompt_tokens": 0} | {
        name: _count(number) for name, number in counted.items() if number is not None
    }


def _count(number: Any) -> int:
    if not isinstance(number, int) or not 0 <= number <= _MOST:
        raise ValueError(f"{number!r} is no count of tokens, and none's id")
    return number


def _parse(payload: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            # Half a surrogate pair as a JSON escape is legal for the standard library, not for orjson.
            chunk = json.loads(payload)
        except ValueError as bad:
            raise EngineServerError(f"the engine streamed something that is not JSON: {bad}") from bad
    if not isinstance(chunk, dict):
        raise EngineServerError("the engine streamed an event that is not an object")
    return chunk


def _error(error: object) -> EngineError:
    if not isinstance(error, dict):
        return EngineServerError(str(error))
    code = error.get("code")
    return refusal(code if isinstance(code, int) else 500, str(error.get("message", "")))
