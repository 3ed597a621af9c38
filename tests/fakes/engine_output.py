"""The fake engine's generation and the shapes in which stock vLLM sends it."""

from __future__ import annotations

import asyncio
import codecs
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tests.fakes.engine_script import Answer
from tests.fakes.engine_tokens import WIDTH, Prompt, Tokenizer

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_PLACES = 8
"""Token positions of an answer at which its alternatives still show in logprobs."""


@dataclass(frozen=True)
class Generation:
    """Generated tokens, the text that each adds (whole characters only), and why it ended."""

    tokens: bytes
    pieces: tuple[str, ...]
    finish_reason: str
    stop_reason: int | str | None
    tops: tuple[dict[int, float], ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @classmethod
    def run(
        cls, tokenizer: Tokenizer, answer: Answer, body: Mapping[str, Any], prompt: Prompt, context: int
    ) -> Generation:
        chances = {answer.text: 1 - sum(answer.alternatives.values()), **answer.alternatives}
        codes = {text: tokenizer.encode(text.removeprefix(prompt.continued)) for text in chances}
        chosen = codes[_pick(tokenizer, chances, codes, body.get("logit_bias")) or answer.text]
        end = tokenizer.special["<|im_end|>"]
        tokens = _split(chosen + end)
        tokens = tokens[: tokens.index(end) + 1]
        finish, reason = "stop", None
        stops = {int(number) for number in body.get("stop_token_ids") or ()}
        for index, number in enumerate(tokenizer.ids(b"".join(tokens))):
            if number in stops:
                tokens, reason = tokens[: index + 1], number
                break
        most = body.get("max_completion_tokens") or body.get("max_tokens") or context
        most = min(most, context - len(prompt))
        if len(tokens) > most:
            tokens, finish, reason = tokens[:most], "length", None
        shown = tokens[:-1] if reason is not None and not body.get("include_stop_str_in_output") else tokens
        decoder = codecs.getincrementaldecoder("utf-8")()
        pieces = [decoder.decode(tokenizer.decode(token)) for token in shown]
        pieces += [""] * (len(tokens) - len(pieces))
        stop = body.get("stop") or ()
        cut = _stop_string("".join(pieces), (stop,) if isinstance(stop, str) else stop)
        stop_reason: int | str | None = reason
        if cut is not None:
            at, stop_reason = cut
            finish = "stop"
            keep = at + (len(stop_reason) if body.get("include_stop_str_in_output") else 0)
            count, size = 0, 0
            while size < at + len(stop_reason):
                size += len(pieces[count])
                count += 1
            tokens, pieces = tokens[:count], _shorten(pieces[:count], keep)
        tops = _tops(tokenizer, tokens, chances, codes)
        return cls(b"".join(tokens), tuple(pieces), finish, stop_reason, tops)


def _split(tokens: bytes) -> list[bytes]:
    return [tokens[at : at + WIDTH] for at in range(0, len(tokens), WIDTH)]


def _pick(
    tokenizer: Tokenizer,
    chances: Mapping[str, float],
    codes: Mapping[str, bytes],
    bias: Mapping[str, float] | None,
) -> str | None:
    if not bias:
        return None
    weights = {int(number): weight for number, weight in bias.items()}

    def score(text: str) -> float:
        return math.log(max(chances[text], 1e-9)) + sum(
            weights.get(number, 0.0) for number in tokenizer.ids(codes[text])[:_PLACES]
        )

    return max(chances, key=score)


def _stop_string(text: str, stops: tuple[str, ...] | list[str]) -> tuple[int, str] | None:
    found = [(text.index(stop), stop) for stop in stops if stop in text]
    return min(found) if found else None


def _shorten(pieces: list[str], keep: int) -> list[str]:
    out = []
    for piece in pieces:
        out.append(piece[: max(0, keep)])
        keep -= len(piece)
    return out


def _tops(
    tokenizer: Tokenizer, tokens: list[bytes], chances: Mapping[str, float], codes: Mapping[str, bytes]
) -> tuple[dict[int, float], ...]:
    """Per token, the logprobs of what could have come there."""
    out = []
    before = b""
    for place, token in enumerate(tokens):
        odds: dict[bytes, float] = {token: 0.0}
        if place < _PLACES and len(chances) > 1:
            for text, chance in chances.items():
                code = codes[text] + tokenizer.special["<|im_end|>"]
                if code.startswith(before):
                    following = code[len(before) : len(before) + WIDTH]
                    odds[following] = odds.get(following, 0.0) + chance
        total = sum(odds.values())
        ranked = sorted(odds.items(), key=lambda item: -item[1])
        out.append(
            {
                int.from_bytes(code, "big"): math.log(max(chance / total, 1e-9)) if total else -0.1
                for code, chance in ranked
                if code
            }
        )
        before += token
    return tuple(out)


@dataclass
class Output:
    """One answer as chunks of a stream, or whole."""

    model: str
    tokenizer: Tokenizer
    body: Mapping[str, Any]
    prompt: Prompt
    generation: Generation

    @property
    def by_ids(self) -> bool:
        return "token_ids" in self.body

    @property
    def wants_usage(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    @property
    def counts_along(self) -> bool:
        """Usage is wanted with every chunk."""
        return bool((self.body.get("stream_options") or {}).get("continuous_usage_stats"))

    def role(self) -> bytes:
        extra = {"prompt_token_ids": self.tokenizer.ids(self.prompt.shown)} if self._wants_ids else {}
        return self._chunk(
            [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}], **extra
        )

    def deltas(self, size: int, usage: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """``usage``: told with every one, but for what was cached."""
        along = {"usage": {k: v for k, v in usage.items() if k != "prompt_tokens_details"}} if usage else {}
        made = self.generation
        count = len(made.pieces)
        for at in range(0, count, size):
            text = "".join(made.pieces[at : at + size])
            choice: dict[str, Any] = {
                "index": 0,
                **({"text": text} if self.by_ids else {"delta": {"content": text}}),
                "logprobs": self._logprobs(at, at + size),
                "finish_reason": None,
            }
            if self._wants_ids or self.by_ids:
                choice["token_ids"] = self.tokenizer.ids(made.tokens[at * WIDTH : (at + size) * WIDTH])
            if at + size >= count:
                choice["finish_reason"] = made.finish_reason
                choice["stop_reason"] = made.stop_reason
            yield self._chunk([choice], **along)

    def usage_event(self, usage: Mapping[str, Any]) -> bytes:
        return self._chunk([], usage=usage)

    def whole(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        made = self.generation
        choice: dict[str, Any] = {
            "index": 0,
            **(
                {"text": made.text}
                if self.by_ids
                else {"message": {"role": "assistant", "content": made.text}}
            ),
            "logprobs": self._logprobs(0, len(made.pieces)),
            "finish_reason": made.finish_reason,
            "stop_reason": made.stop_reason,
        }
        out: dict[str, Any] = {
            "id": "chatcmpl-fake", "object": "chat.completion", "created": 0, "model": self.model,
            "choices": [choice], "usage": usage,
        }  # fmt: skip
        if self._wants_ids or self.by_ids:
            choice["token_ids"] = self.tokenizer.ids(made.tokens)
        if self._wants_ids:
            out["prompt_token_ids"] = self.tokenizer.ids(self.prompt.shown)
        return out

    @property
    def _wants_ids(self) -> bool:
        return bool(self.body.get("return_token_ids"))

    def _logprobs(self, first: int, last: int) -> dict[str, Any] | None:
        if not self.body.get("logprobs"):
            return None
        most = self.body.get("top_logprobs") or 0
        as_ids = self.body.get("return_tokens_as_token_ids")
        tokens = self.tokenizer.ids(self.generation.tokens)

        def entry(number: int, logprob: float) -> dict[str, Any]:
            raw = self.tokenizer.decode(number.to_bytes(WIDTH, "big"))
            name = f"token_id:{number}" if as_ids else raw.decode("utf-8", "replace")
            return {"token": name, "logprob": logprob, "bytes": list(raw)}

        content = []
        for place in range(first, min(last, len(tokens))):
            top = self.generation.tops[place]
            token = entry(tokens[place], top[tokens[place]])
            token["top_logprobs"] = [entry(*item) for item in list(top.items())[:most]]
            content.append(token)
        return {"content": content}

    def _chunk(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        return event(
            {
                "id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0, "model": self.model,
                "choices": choices, **extra,
            }
        )  # fmt: skip


class StreamWriter:
    """Writes a streamed body; ``cut`` splits every piece into so many bytes, in the middle of anything."""

    def __init__(self, send: Send, cut: int | None) -> None:
        self._send = send
        self._cut = cut

    async def start(self) -> None:
        await _start(self._send, 200, b"text/event-stream; charset=utf-8")

    async def write(self, data: bytes) -> None:
        size = self._cut or len(data)
        for at in range(0, len(data), size):
            await self._send({"type": "http.response.body", "body": data[at : at + size], "more_body": True})
            if self._cut:
                await asyncio.sleep(0)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    kind = "BadRequestError" if status == 400 else "NotFoundError" if status == 404 else "InternalServerError"
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


async def reply_json(send: Send, status: int, data: Mapping[str, Any]) -> None:
    await reply(send, status, orjson.dumps(data), b"application/json")


async def reply(send: Send, status: int, body: bytes, kind: bytes) -> None:
    await _start(send, status, kind)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _start(send: Send, status: int, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
