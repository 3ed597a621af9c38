"""``VllmChat`` and ``EngineMetrics`` on stock vLLM: what the fake engine stands in for is so."""

from __future__ import annotations

import itertools
import os

import pytest

from bridges.chat_engine import VllmChat
from bridges.circuit import EngineState
from bridges.engine import BadImage, ChatRequest, ContextOverflow, Deadlines, TooManyImages
from bridges.engine_metrics import EngineMetrics
from tests.bridges.chatting import ask, request, said, text_of, user
from tests.engine_launch.real_engine import RealEngine
from tests.fakes.pictures import jpeg

pytestmark = pytest.mark.engine
HEAD = {"role": "system", "content": "You watch a video and speak when it matters. " * 20}
# Other runs may have shown the same engine the same frames: this run's are its own.
_numbers = itertools.count(int.from_bytes(os.urandom(3), "big") << 8)


def fresh() -> str:
    return f"f{next(_numbers)}"


def frames(uuid: str) -> bytes:
    return jpeg(int(uuid[1:]), 448, 448)


def asked(*messages: dict[str, object], seed: int = 1, **params: object) -> ChatRequest:
    base = request(*messages, **{"skip_special_tokens": False, "temperature": 0.8, "seed": seed, **params})
    return ChatRequest(base.messages, base.params, Deadlines(120, 120), base.session)


async def test_frames_move_once_and_turns_are_cached(engine: RealEngine) -> None:
    chat, metrics = VllmChat(engine.url, engine.model), EngineMetrics(engine.url)
    block = engine.facts.block_tokens
    before = await metrics.load()
    messages: list[dict[str, object]] = [HEAD]
    expected = 0
    for tick in range(4):
        messages.append(user(f"<{tick}.0s>", fresh()))
        deltas, done = await ask(chat, asked(*messages, seed=tick, return_token_ids=True), frames)  # type: ignore[arg-type]
        assert sum(len(delta.token_ids) for delta in deltas) == done.completion_tokens
        assert done.cached_tokens is not None and done.cached_tokens >= expected
        assert done.retries == 0 and not done.suspect
        assert done.body_bytes < 2 * len(frames("f1")) + 3000
        expected = (done.prompt_tokens + done.completion_tokens - 1) // block * block
        messages.append(said(text_of(deltas)))
    assert await chat.tokenize(messages[:-1], frames) == done.prompt_tokens
    after = await metrics.load()
    assert after.kv_tokens and after.block_tokens == block
    reuse = after.reuse_since(before)
    assert reuse is not None and reuse > 0.3
    assert await chat.ping(60) and chat.state is EngineState.UP
    await metrics.aclose()
    await chat.aclose()


async def test_a_miss_is_mended(engine: RealEngine) -> None:
    """A new frame that the ledger wrongly believes the engine holds: a second bridge to it, for one."""
    chat, frame = VllmChat(engine.url, engine.model), fresh()
    chat._ledger.sent([frame])  # type: ignore[union-attr]
    _, done = await ask(chat, asked(user("x", frame)), frames)  # type: ignore[arg-type]
    assert done.retries == 1
    await chat.aclose()


async def test_logprobs_by_id(engine: RealEngine) -> None:
    chat = VllmChat(engine.url, engine.model)
    options = {"logprobs": True, "top_logprobs": 20, "return_token_ids": True}
    deltas, _ = await ask(chat, asked(HEAD, user("<0.0s>", fresh()), **options), frames)  # type: ignore[arg-type]
    assert all(delta.token_ids[0] in delta.top_logprobs[0] for delta in deltas)
    assert set(engine.facts.decision_ids.values()) & set(deltas[0].top_logprobs[0])
    await chat.aclose()


async def test_refusals_have_their_types(engine: RealEngine) -> None:
    chat, facts = VllmChat(engine.url, engine.model), engine.facts
    for messages, expected in [
        ([user("word " * facts.context_tokens * 2)], ContextOverflow),
        ([user(*[fresh()] * (facts.max_images + 1))], TooManyImages),
        ([user("x", fresh())], BadImage),
    ]:
        images = frames if expected is not BadImage else lambda _uuid: frames("f1")[:900]
        with pytest.raises(expected) as caught:
            await ask(chat, asked(*messages), images)  # type: ignore[arg-type]
        if isinstance(caught.value, TooManyImages):
            assert caught.value.limit == facts.max_images
    await chat.aclose()
