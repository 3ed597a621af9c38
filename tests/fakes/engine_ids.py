"""The fake engine's token route: ids as a client sends them become the prompt of the messages they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from bridges.token_route import GENERATE, Known, TokenRoute
from tests.fakes.engine_tokens import PAD, WIDTH, Prompt, Tokenizer, template

BESIDE = ("/openapi.json", "/detokenize", "/v1/chat/completions/render")
ASKED = ({"role": "system", "content": "Watch."}, {"role": "user", "content": "Look."})
ANSWERED = (*ASKED, {"role": "assistant", "content": "Yes."})


def expanded(tokenizer: Tokenizer, body: Mapping[str, Any], pads: Sequence[bytes]) -> Prompt:
    """The whole prompt of a body with ``token_ids``. ``pads``: each picture's own tokens.

    Without ``ranges`` one pad stands for each picture; with them every pad is there, and only what the ranges
    cover is a picture, as in vLLM.
    """
    tokens = [number.to_bytes(WIDTH, "big") for number in body["token_ids"]]
    pad = tokenizer.special[PAD]
    own, shown = list(tokens), list(tokens)
    if ranges := body.get("ranges"):
        for each, picture in zip(ranges, pads, strict=True):
            at, length = each["offset"], each["length"]
            own[at : at + length] = [picture[n * WIDTH : (n + 1) * WIDTH] for n in range(length)]
    else:
        given = iter(pads)
        for at, token in enumerate(tokens):
            if token == pad and (picture := next(given, b"")):
                own[at], shown[at] = picture, pad * (len(picture) // WIDTH)
    opening = tokenizer.special["<|im_start|>"] + tokenizer.encode("assistant\n")
    said = b"".join(tokens).rpartition(opening)[2]
    pieces = [said[at : at + WIDTH] for at in range(0, len(said), WIDTH)]
    continued = b"".join(tokenizer.decode(piece) for piece in pieces).decode("utf-8", "replace")
    return Prompt(b"".join(own), continued, b"".join(shown))


def beside(tokenizer: Tokenizer, path: str, body: bytes) -> dict[str, Any]:
    """What is asked of an engine besides before prompts go to it as ids: one of the routes ``BESIDE``."""
    if path == "/openapi.json":
        schemas: dict[str, Any] = {"GenerateRequest": {"properties": {"content_parts": {}, "features": {}}}}
        return {"paths": {GENERATE: {}}, "components": {"schemas": schemas}}
    if path == "/detokenize":
        names = {int.from_bytes(token, "big"): text for text, token in tokenizer.special.items()}
        given = orjson.loads(body)["tokens"]
        texts = [names.get(n) or tokenizer.decode(n.to_bytes(WIDTH, "big")).decode() for n in given]
        return {"prompt": "".join(texts)}
    return {"sampling_params": {"temperature": 1.0, "top_p": 1.0, "stop_token_ids": []}}


def route_of(
    tokenizer: Tokenizer,
    kind: Literal["content_parts", "features"] = "content_parts",
    spell: Sequence[str] = (),
) -> TokenRoute:
    """What a self-check would learn of the fake engine. ``spell``: tags whose logprobs will be asked for."""

    def known(messages: Sequence[Mapping[str, Any]]) -> Known:
        body = {"messages": messages, "add_generation_prompt": False}
        shown = template(tokenizer, body, lambda _part: b"").shown
        return Known(tuple(messages), tuple(tokenizer.ids(shown)))

    return TokenRoute(
        kind=kind,
        image_text=f"<|vision_start|>{PAD}<|vision_end|>",
        pad=tokenizer.id_of(PAD),
        asked=known(ASKED),
        answered=known(ANSWERED),
        spelled={text: tokenizer.id_of(text) for text in spell},
    )
