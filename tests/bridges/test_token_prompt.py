"""Prompts grown by ids are those that the engine would make of the messages, however a window grows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.token_prompt import Mismatch, TokenPrompt, TokenPrompts
from bridges.token_route import Piece, TokenRoute, Untranslatable, collapsed, content_parts, features
from tests.bridges.chatting import said, user
from tests.fakes.engine_ids import route_of
from tests.fakes.engine_tokens import PAD, Tokenizer, template

TOKENIZER = Tokenizer(tags=("</silence>",))
ROUTE = route_of(TOKENIZER)
PADS = TOKENIZER.special[PAD]
HEAD = {"role": "system", "content": "You watch."}


def size(uuid: str) -> int:
    return 3 + int(uuid[1:]) % 4


def ids_of(messages: Sequence[Mapping[str, Any]], **params: Any) -> list[int]:
    """As the engine's chat route makes them."""
    body = {"messages": messages, **params}
    return TOKENIZER.ids(template(TOKENIZER, body, lambda part: PADS * size(part["uuid"])).shown)


class Asked:
    """The engine's ``/tokenize``. ``bodies``: what was asked for."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []

    async def __call__(self, body: Mapping[str, Any]) -> list[int]:
        self.bodies.append(body)
        return ids_of(**body)


def whole(prompt: TokenPrompt) -> list[int]:
    """Every id, pads and all."""
    out: list[int] = []
    for index, piece in enumerate(prompt.pieces):
        numbers = [int(number) for number in piece.ids.split(b",")] if piece.tokens else []
        assert len(numbers) == piece.tokens
        out += numbers
        if index < len(prompt.images):
            out += [ROUTE.pad] * size(prompt.images[index])
    return out


PARTS = st.lists(
    st.one_of(st.integers(1, 30).map(lambda n: f"f{n}"), st.sampled_from(["<1.0 seconds>", "?", "é"])),
    min_size=1,
    max_size=4,
)
TURNS = st.lists(st.tuples(PARTS, st.sampled_from(["</silence>", "A dog.", ""])), min_size=1, max_size=6)
ENDS = st.sampled_from(
    [{}, {"add_generation_prompt": False}, {"add_generation_prompt": False, "continue_final_message": True}]
)


@given(TURNS, st.lists(st.tuples(ENDS, PARTS), max_size=6))
def test_every_prompt_of_a_window_is_the_engines_own(
    turns: list[tuple[list[str], str]], ticks: list[tuple[dict[str, Any], list[str]]]
) -> None:
    """A window grows by a turn a tick; a tick may find its open turn changed, fail, warm or continue."""

    async def grow() -> None:
        prompts, tokenize = TokenPrompts(ROUTE), Asked()
        messages: list[dict[str, Any]] = [HEAD]
        for parts, text in turns:
            messages += [user(*parts), said(text)]
        messages[-1:] = []
        await prompts.begin("w", messages, {}, ids_of(messages), tokenize)
        for params, parts in ticks:
            answered = [*messages, said("</silence>")]
            for open_turn in (user(*parts), user(*parts, "<more>", "f3")):
                asked = [*answered, open_turn]
                if params.get("continue_final_message"):
                    asked.append(said("</response>"))
                assert prompts.knows("w", asked)
                prompt = await prompts.prompt("w", asked, params, tokenize)
                assert whole(prompt) == ids_of(asked, **params)
                assert all(n == size(u) for u, n in zip(prompt.images, prompt.lengths, strict=True) if n)
            messages = [*answered, open_turn]
            prompt = await prompts.prompt("w", messages, {}, tokenize)
            prompts.measured("w", {uuid: size(uuid) for uuid in prompt.images})

    asyncio.run(grow())


async def test_the_same_words_are_asked_for_once() -> None:
    prompts, tokenize = TokenPrompts(ROUTE), Asked()
    for window, first in (("a", "f1"), ("b", "f2")):
        messages = [HEAD, user("<0.0 seconds>", first)]
        await prompts.begin(window, messages, {}, ids_of(messages), tokenize)
        for tick, frame in enumerate(("f3", "f4"), start=1):
            messages += [said("</silence>"), user(f"<{tick}.0 seconds>", frame)]
            await prompts.prompt(window, messages, {}, tokenize)
    assert len(tokenize.bodies) == 4  # what opens an answer, silence, and two times
    assert all("uuid" not in str(body) for body in tokenize.bodies)


async def test_a_window_with_another_beginning_is_not_known() -> None:
    prompts, tokenize = TokenPrompts(ROUTE), Asked()
    messages = [HEAD, user("<0.0 seconds>", "f1")]
    await prompts.begin("w", messages, {}, ids_of(messages), tokenize)
    grown = [*messages, said("."), user("f2")]
    assert prompts.knows("w", grown)
    assert not prompts.knows("x", grown)
    assert not prompts.knows("w", [{**HEAD, "content": "You listen."}, *grown[1:]])
    prompts.forget("w")
    assert not prompts.knows("w", grown)


async def test_windows_are_bounded() -> None:
    prompts, tokenize = TokenPrompts(ROUTE, windows=2, texts=2), Asked()
    messages = [HEAD, user("f1")]
    for window in ("a", "b", "c"):
        await prompts.begin(window, messages, {}, ids_of(messages), tokenize)
    assert len(prompts) == 2 and not prompts.knows("a", messages)


async def test_ids_that_do_not_add_up_are_refused() -> None:
    prompts, tokenize = TokenPrompts(ROUTE), Asked()
    messages = [HEAD, user("<0.0 seconds>", "f1")]
    ids = ids_of(messages)
    for wrong in ([number for number in ids if number != ROUTE.pad], ids[:-1]):
        with pytest.raises(Mismatch):
            await prompts.begin("w", messages, {}, wrong, tokenize)
    await prompts.begin("w", messages, {}, ids, tokenize)

    async def strange(body: Mapping[str, Any]) -> list[int]:
        return [1, *ids_of(**body)]

    async def blind(body: Mapping[str, Any]) -> list[int]:
        return [number for number in ids_of(**body) if number != ROUTE.pad]

    grown = [*messages, said("new"), user("f2")]
    for tokenize_ in (strange, blind):
        with pytest.raises(Mismatch):
            await prompts.prompt("w", grown, {}, tokenize_)


async def test_the_count_of_a_prompt_tells_a_new_pictures_length_and_another_prompt() -> None:
    prompts, tokenize = TokenPrompts(ROUTE), Asked()
    messages = [HEAD, user("<0.0 seconds>", "f1")]
    await prompts.begin("w", messages, {}, ids_of(messages), tokenize)
    messages += [said("</silence>"), user("f6")]
    prompt = await prompts.prompt("w", messages, {}, tokenize)
    assert not prompt.exact
    with pytest.raises(Mismatch):
        prompts.counted("w", prompt, len(ids_of(messages)) - size("f6"))
    prompts.counted("w", prompt, len(ids_of(messages)))
    prompt = await prompts.prompt("w", messages, {}, tokenize)
    assert prompt.exact and prompt.lengths[-1] == size("f6")
    with pytest.raises(Mismatch):
        prompts.counted("w", prompt, len(ids_of(messages)) + 1)


def test_bodies() -> None:
    pieces, lengths = collapsed([1, 2, 9, 9, 9, 3, 9, 9, 4], 9)
    assert pieces == (Piece(b"1,2", 2), Piece(b"3", 1), Piece(b"4", 1)) and lengths == (3, 2)
    parts = content_parts(pieces, [("a", None), ("b", b"\x89PNG\r\n\x1a\n")], 9)
    assert orjson.dumps(parts["token_ids"]) == b"[1,2,9,3,9,4]"
    assert parts["content_parts"][0] == {"type": "image_url", "url": None, "uuid": "a"}
    body = features(pieces, ["a", "b"], lengths, 9)
    assert orjson.dumps(body["token_ids"]) == b"[1,2,9,9,9,3,9,9,4]"
    told = body["features"]
    assert told["mm_placeholders"]["image"] == [{"offset": 2, "length": 3}, {"offset": 6, "length": 2}]
    assert told["kwargs_data"] == {"image": [None, None]}
    assert collapsed([9, 9], 9) == ((Piece(b"", 0), Piece(b"", 0)), (2,))


def test_parameters_of_the_chat_route() -> None:
    route = TokenRoute(
        "content_parts", "", 9, ROUTE.asked, ROUTE.answered, {"top_k": 20, "stop_token_ids": [7]}, {"x": 1}
    )
    chat = {"max_tokens": 4, "temperature": None, "stop_token_ids": [5], "cache_salt": "s", "priority": 1}
    told = route.params({**chat, "add_generation_prompt": False, "logprobs": True, "top_logprobs": 20})
    assert told == {
        "sampling_params": {"max_tokens": 4, "top_k": 20, "stop_token_ids": [5, 7], "logprobs": 20},
        "cache_salt": "s",
        "priority": 1,
    }
    with pytest.raises(Untranslatable, match="tools"):
        route.params({"tools": []})
    with pytest.raises(Untranslatable):
        ROUTE.params({"logprobs": True, "top_logprobs": 5})
