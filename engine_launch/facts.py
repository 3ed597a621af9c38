"""What the self-check learned of an engine: plain values that ``app.py`` hands to the other rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """How prompts go as token ids; every id comes from the engine.

    :param kind: ``content_parts`` or ``features``
    :param image_text: text whose ids are a picture's with one pad; ``pad``: that pad's id
    :param asked: ids of ``asked_messages``, which end with a user's; ``answered``: likewise, with a reply
    :param defaults: sampling that the chat route uses where a request says nothing
    :param spelled: how logprobs name the tokens at the decision point: text -> id
    """

    kind: str
    image_text: str
    pad: int
    asked: tuple[int, ...]
    answered: tuple[int, ...]
    asked_messages: tuple[Mapping[str, Any], ...]
    answered_messages: tuple[Mapping[str, Any], ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spelled: Mapping[str, int] = field(default_factory=dict)

    def with_spelled(self, spelled: Mapping[str, int]) -> TokenFacts:
        return replace(self, spelled=spelled)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts of one running engine.

    :param model: served model name
    :param weights: of the model, as the engine names them: a folder or a repository
    :param version: the engine's version string, if it tells
    :param context_tokens: context length
    :param max_images: images one prompt may hold (0: no images)
    :param block_tokens: prefix-cache block size in tokens
    :param kv_tokens: KV cache size in tokens, if known
    :param image_cache: ``shm``, ``lru`` or ``unknown``; a fact of the launch profile, never probed
    :param image_cache_bytes: size of the processor cache, if known
    :param reports_cached: ``usage.prompt_tokens_details.cached_tokens`` is filled in
    :param prefix_cache: the same two images sent twice showed cached tokens
    :param uuid_parts: uuid-only image parts work
    :param constrained: ``structured_outputs`` hold answers to a pattern; only known where that was asked
    :param priority: a non-zero ``priority`` is taken; some engines take one that does not count
    :param routes: token routes ``content_parts`` and ``features``: ``present``, ``absent``, ``not_probed``
    :param tokens: how prompts go as token ids; None: they go as messages
    :param tag_ids: single-token tags: tag text -> token id
    :param decision_index: token position at which the tags first differ (0: their first token)
    :param decision_ids: per action, the token id at the decision point
    :param end_ids: token ids that end an assistant turn
    """

    model: str
    weights: str | None = None
    version: str | None = None
    context_tokens: int = 0
    max_images: int = 0
    block_tokens: int = 0
    kv_tokens: int | None = None
    image_cache: str = "unknown"
    image_cache_bytes: int | None = None
    reports_cached: bool = False
    prefix_cache: bool = False
    uuid_parts: bool = False
    constrained: bool = False
    priority: bool = False
    routes: dict[str, str] = field(default_factory=dict)
    tokens: TokenFacts | None = None
    tag_ids: dict[str, int] = field(default_factory=dict)
    decision_index: int | None = None
    decision_ids: dict[str, int] = field(default_factory=dict)
    end_ids: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EngineFacts:
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        if "end_ids" in known:
            known["end_ids"] = tuple(known["end_ids"])
        if tokens := known.get("tokens"):
            lists = {name: tuple(value) for name, value in tokens.items() if isinstance(value, list | tuple)}
            known["tokens"] = TokenFacts(**{**tokens, **lists})
        return cls(**known)
