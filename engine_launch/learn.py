"""One function per fact that can be learned of an engine by asking it. None of the requests can harm it.

Never sent, here or elsewhere in this room: the ``features`` form of the token route, which takes down an
engine whose image cache is ``shm``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine_launch.client import EngineHttp, Message, Reply, image_part, metric_total

TOKEN_ROUTE = "/inference/v1/generate"
MANY_IMAGES = 4096
SMALL_IMAGE = 64
ODD_WORDS = "(zqx7|7xqz)"
_AT_MOST = re.compile(r"At most (\d+) image", re.I)
_CONTEXT = re.compile(r"maximum context length (?:is|of) (\d+)", re.I)


@dataclass(frozen=True, slots=True)
class TagPoint:
    """Where a decision is made, in tokens.

    :param ids: tags that are one token each
    :param index: first position at which the silence and response answers differ, None if they never do
    :param choices: token at that position, by action
    :param end: token after an answer
    """

    ids: Mapping[str, int]
    index: int | None
    choices: Mapping[str, int]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much of a prompt with two images was reused when it was sent again.

    :param reported: the engine says how many tokens were cached
    :param cached: by that report, else by its counters
    :param expected: whole blocks of the prompt but its last token; None where the block size is unknown
    """

    reported: bool
    cached: int
    expected: int | None


def user(*content: Mapping[str, Any] | str) -> dict[str, Any]:
    parts = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    return {"role": "user", "content": parts}


def context_tokens(engine: EngineHttp, card: Mapping[str, Any]) -> int:
    """From the model's card, else from the refusal of an answer that can't fit; 0 if neither tells."""
    told = card.get("max_model_len")
    if isinstance(told, int):
        return told
    refusal = engine.chat(str(card["id"]), [user(".")], max_tokens=100_000_000)
    found = _CONTEXT.search(refusal.error) if refusal.status == 400 else None
    return int(found.group(1)) if found else 0


def image_limit(engine: EngineHttp, model: str, nonce: str) -> int:
    """Images one prompt may hold; 0 where the model takes none.

    References to images that the engine never had cost it nothing and are counted before they are looked up,
    so one request above any limit makes it name its own. Others are searched with a few small images.
    """
    reference = {"type": "image_url", "image_url": None, "uuid": f"limit-{nonce}"}
    refusal = engine.chat(model, [user(*[reference] * MANY_IMAGES)])
    found = _AT_MOST.search(refusal.error)
    if found:
        return int(found.group(1))
    if refusal.status == 400 and "cache miss" in refusal.error.lower():
        return MANY_IMAGES
    return _search_limit(engine, model)


def _search_limit(engine: EngineHttp, model: str) -> int:
    def refused(count: int) -> Reply | None:
        reply = engine.chat(model, [user(*[image_part(1, SMALL_IMAGE)] * count)])
        return reply if reply.status != 200 else None

    accepted, rejected = 0, 0
    for count in (1, 8, 64):
        reply = refused(count)
        if reply is None:
            accepted = count
            continue
        found = _AT_MOST.search(reply.error)
        if found:
            return int(found.group(1))
        rejected = count
        break
    while rejected - accepted > 1 and accepted:
        middle = (accepted + rejected) // 2
        if refused(middle) is None:
            accepted = middle
        else:
            rejected = middle
    return accepted


def cache_labels(metrics: str) -> dict[str, str]:
    """Labels of ``vllm:cache_config_info``; empty where there are none."""
    line = re.search(r"^vllm:cache_config_info\{(.*)\} ", metrics, re.M)
    return dict(re.findall(r'(\w+)="([^"]*)"', line.group(1))) if line else {}


def block_and_kv_tokens(labels: Mapping[str, str]) -> tuple[int, int | None]:
    """(block size, KV cache size) in tokens; 0 and None where not told."""

    def number(name: str) -> int | None:
        value = labels.get(name, "")
        return int(value) if value.isdigit() else None

    block, blocks = number("block_size") or 0, number("num_gpu_blocks")
    return block, number("kv_cache_size_tokens") or (block * blocks if block and blocks else None)


def reuse(engine: EngineHttp, model: str, block: int, nonce: str, number: int) -> Reuse | str:
    """Send a prompt with two images twice. A text instead of a result says why it could not be sent."""
    filler = f"{nonce} " + "word " * max(64, 2 * block)
    messages = [
        {"role": "system", "content": filler},
        user("first", image_part(number, 224), "second", image_part(number + 1, 224)),
    ]
    first = engine.chat(model, messages)
    if first.status != 200:
        return first.error
    hits_before = metric_total(engine.metrics(), "vllm:prefix_cache_hits_total")
    second = engine.chat(model, messages)
    if second.status != 200:
        return second.error
    hits = metric_total(engine.metrics(), "vllm:prefix_cache_hits_total") - hits_before
    expected = (second.prompt_tokens - 1) // block * block if block else None
    if second.cached_tokens is None:
        return Reuse(False, int(hits), expected)
    return Reuse(True, second.cached_tokens, expected)


def prefix_holds(engine: EngineHttp, model: str, answers: Sequence[str]) -> bool | None:
    """Whether a grown conversation's tokens begin with the shorter one's; None without ``/tokenize``."""
    messages: list[Message] = [
        {"role": "system", "content": "You watch a video."},
        user("<0.0 seconds>", image_part(3, SMALL_IMAGE)),
    ]
    before = engine.tokenize(model, messages=messages, add_generation_prompt=True)
    if before is None:
        return None
    for number, answer in enumerate(answers, start=1):
        messages += [
            {"role": "assistant", "content": answer},
            user(f"<{number}.0 seconds>", image_part(3 + number, SMALL_IMAGE)),
        ]
        after = engine.tokenize(model, messages=messages, add_generation_prompt=True)
        if after is None or after[: len(before)] != before:
            return False
        before = after
    return True


def tag_point(engine: EngineHttp, model: str, actions: Mapping[str, str]) -> TagPoint | None:
    """Learn how the tags of ``actions`` (action -> tag) are tokenised after a generation prompt.

    None where the engine has no ``/tokenize``, or where an answer's tokens don't continue the prompt's.
    """
    question: list[Message] = [{"role": "user", "content": "."}]
    prompt = engine.tokenize(model, messages=question, add_generation_prompt=True)
    if prompt is None:
        return None
    answers: dict[str, list[int]] = {}
    ids: dict[str, int] = {}
    end: tuple[int, ...] = ()
    for action, tag in actions.items():
        alone = engine.tokenize(model, prompt=tag, add_special_tokens=False) or []
        if len(alone) == 1:
            ids[tag] = alone[0]
        answered = engine.tokenize(
            model, messages=[*question, {"role": "assistant", "content": tag}], add_generation_prompt=False
        )
        if answered is None or answered[: len(prompt)] != prompt:
            return None
        answers[action] = answered[len(prompt) :]
        if answers[action][: len(alone)] == alone:
            end = tuple(answers[action][len(alone) : len(alone) + 1]) or end
    silence, response = answers.get("silence", []), answers.get("response", [])
    index = next((i for i, (a, b) in enumerate(zip(silence, response, strict=False)) if a != b), None)
    choices = {} if index is None else {action: a[index] for action, a in answers.items() if len(a) > index}
    return TagPoint(ids, index, choices, end)


def uuid_parts(engine: EngineHttp, model: str, nonce: str) -> bool:
    """An image is sent with a uuid, then by the uuid alone; an unknown uuid must be a clean refusal."""
    known = f"check-{nonce}"
    sent = engine.chat(model, [user("look", image_part(5, 224, known))])
    again = engine.chat(model, [user("look", {"type": "image_url", "image_url": None, "uuid": known})])
    missing = {"type": "image_url", "image_url": None, "uuid": f"never-{nonce}"}
    unknown = engine.chat(model, [user("look", missing)])
    same = sent.status == again.status == 200 and sent.prompt_tokens == again.prompt_tokens
    return same and unknown.status == 400


def not_constrained(engine: EngineHttp, model: str, pattern: str) -> str | None:
    """Why ``structured_outputs`` don't hold an answer to ``pattern``; None where they do.

    First two words that no model says on its own: the model's marks it might have said without being held.
    """
    for regex in (ODD_WORDS, pattern):
        held = {"regex": regex}
        reply = engine.chat(
            model, [user(".")], max_tokens=24, structured_outputs=held, skip_special_tokens=False
        )
        if reply.status != 200:
            return f"structured outputs are refused: {reply.error}"
        if not re.match(regex, reply.answer):
            return f"structured outputs are ignored: {reply.answer[:40]!r} does not match"
    return None


def accepts_priority(engine: EngineHttp, model: str) -> bool:
    return engine.chat(model, [user(".")], priority=1).status == 200


def refuses_priority(engine: EngineHttp, model: str) -> bool:
    """That one does not answer, or fails, says nothing about it."""
    return engine.chat(model, [user(".")], priority=1).status == 400


def token_routes(engine: EngineHttp, image_cache: str) -> dict[str, str]:
    """``content_parts`` and ``features``: present, absent or not_probed; read from the engine's own schema.

    ``features`` counts only with the ``lru`` image cache: elsewhere using it would take the engine down.
    """
    reply = engine.send("GET", "/openapi.json")
    if reply.status != 200:
        return {"content_parts": "not_probed", "features": "not_probed"}
    if TOKEN_ROUTE not in reply.json.get("paths", {}):
        return {"content_parts": "absent", "features": "absent"}
    schemas = reply.json.get("components", {}).get("schemas", {})
    fields = schemas.get("GenerateRequest", {}).get("properties", {})
    routes = {name: "present" if name in fields else "absent" for name in ("content_parts", "features")}
    if routes["features"] == "present" and image_cache != "lru":
        routes["features"] = "not_probed"
    return routes
