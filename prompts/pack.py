"""What a prompt pack is once loaded: texts, tags, grammar, period, sampling, pixels. Immutable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tags:
    """The model's decision tags. ``variants`` map every other known spelling to its canonical tag."""

    silence: str
    response: str
    delegation: str | None
    variants: Mapping[str, str]

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(t for t in (self.silence, self.response, self.delegation) if t)


@dataclass(frozen=True, slots=True)
class Pixels:
    """Bounds of one frame in pixels (area); sides are multiples of ``multiple``."""

    min: int
    max: int
    summary_max: int
    multiple: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters sent with a request, as they are; ``max_tokens`` apart because deadlines depend on it."""

    max_tokens: int
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phrases:
    """Templates of the lines Vigil writes into prompts, one set per language (``str.format`` fields).

    time_tag {seconds}; query_header; no_query; history_header; history_notice; qa_header; qa_notice;
    range {start} {end}; qa_query {index} {time} {text}; qa_response {time} {text}; qa_unasked {time} {text};
    qa_digest {count} {start} {end}; gap {start} {end}; interrupted {heard}; interrupted_unheard;
    delegation_answer {question} {text}; delegation_failed {question} {text}; query_cleared;
    solver_note {text}; solver_question {text}
    """

    texts: Mapping[str, str]

    def line(self, name: str, /, **fields: str) -> str:
        return self.texts[name].format(**fields)


@dataclass(frozen=True, slots=True)
class Pack:
    """One family.

    :param source: all its files and tables as one text, from which ``prompts.loader.pack_of`` makes it again
    :param digest: of ``source``: a live window finishes on the pack it began with
    """

    family: str
    digest: str
    source: str
    period_ms: int
    frames_per_tick: int
    max_frames_per_tick: int
    chunk_frames: int
    rollup_chunks: int
    long_term_max: int
    long_term_keep: int
    overlap_frames: int
    time_tag_per_image: bool
    tags: Tags
    control_tokens: tuple[str, ...]
    pixels: Pixels
    tokens_per_pixel: float
    decide: Sampling
    summary: Sampling
    rollup: Sampling
    summary_span_tokens: int
    languages: tuple[str, ...]
    personas: Mapping[str, Mapping[str, str]]
    phrases: Mapping[str, Phrases]
    summary_prompts: Mapping[str, str]
    rollup_prompts: Mapping[str, str]
    solver_prompts: Mapping[str, str]
    watch_personas: tuple[str, ...]
    quirks: Mapping[str, Any]

    def persona(self, name: str, language: str) -> str:
        """The system prompt. Raises ``KeyError`` for an unknown persona or language."""
        return self.personas[name][language]

    def reads_like(self, other: Pack) -> bool:
        """What was written for or by the other pack's model means the same to this one's: the same tags and
        control tokens (variants of the tags may differ, where they begin like known ones)."""
        return self.tags.all == other.tags.all and self._marks() == other._marks()

    def _marks(self) -> tuple[frozenset[str], frozenset[str]]:
        every = (*self.control_tokens, *self.tags.all, *self.tags.variants)
        return frozenset(self.control_tokens), frozenset(token[:1] for token in every)
