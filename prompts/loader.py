"""Read a prompt pack from its folder, check it, and give it out as immutable data.

A pack may name a ``base``: files and ``model.toml`` tables it does not have come from there.
Raises ``PackError`` with the file and the key at fault.
"""

from __future__ import annotations

import hashlib
import json
import string
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prompts.pack import Pack, Phrases, Pixels, Sampling, Tags

PACKS = Path(__file__).parent

PHRASE_FIELDS: Mapping[str, frozenset[str]] = {
    "time_tag": frozenset({"seconds"}),
    "query_header": frozenset(),
    "no_query": frozenset(),
    "history_header": frozenset(),
    "history_notice": frozenset(),
    "qa_header": frozenset(),
    "qa_notice": frozenset(),
    "range": frozenset({"start", "end"}),
    "qa_query": frozenset({"index", "time", "text"}),
    "qa_response": frozenset({"time", "text"}),
    "qa_unasked": frozenset({"index", "time", "text"}),
    "qa_digest": frozenset({"count", "start", "end"}),
    "gap": frozenset({"start", "end"}),
    "interrupted": frozenset({"heard"}),
    "interrupted_unheard": frozenset(),
    "delegation_answer": frozenset({"question", "text"}),
    "delegation_failed": frozenset({"question", "text"}),
    "query_cleared": frozenset(),
    "solver_note": frozenset({"text"}),
    "solver_question": frozenset({"text"}),
}
SUMMARY_FIELDS = frozenset({"start", "end", "language", "target", "query"})
SOLVER_FIELDS = frozenset({"language", "target"})


class PackError(Exception):
    """A pack is missing or wrong; the message names the file and what to change."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Time(_Strict):
    period_ms: int = Field(gt=0)
    frames_per_tick: int = Field(gt=0)
    max_frames_per_tick: int = Field(gt=0)
    time_tag_per_image: bool


class _Memory(_Strict):
    chunk_frames: int = Field(ge=2)
    overlap_frames: int = Field(ge=0)
    rollup_chunks: int = Field(ge=2)
    long_term_max: int = Field(ge=2)
    long_term_keep: int = Field(ge=1)
    summary_target_tokens: int = Field(ge=16)


class _Tags(_Strict):
    silence: str = Field(min_length=1)
    response: str = Field(min_length=1)
    delegation: str | None = None
    variants: dict[str, str] = {}


class _Control(_Strict):
    tokens: tuple[str, ...]


class _Pixels(_Strict):
    min: int = Field(gt=0)
    max: int = Field(gt=0)
    summary_max: int = Field(gt=0)
    multiple: int = Field(gt=0)
    tokens_per_pixel: float = Field(gt=0)


class _Sampling(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    max_tokens: int = Field(gt=0)


class _SamplingSet(_Strict):
    decide: _Sampling
    summary: _Sampling
    rollup: _Sampling


class _ModelFile(_Strict):
    family: str
    languages: tuple[str, ...] = Field(min_length=1)
    watch_personas: tuple[str, ...] = ()
    time: _Time
    memory: _Memory
    tags: _Tags
    control: _Control
    pixels: _Pixels
    sampling: _SamplingSet
    quirks: dict[str, Any] = {}


def pack_names() -> tuple[str, ...]:
    """Families that ship with this build."""
    return tuple(sorted(p.parent.name for p in PACKS.glob("*/model.toml")))


@cache
def load_pack(name: str) -> Pack:
    """The pack of family ``name`` (a folder here), or of a folder given by path."""
    folder = PACKS / name
    if not (folder / "model.toml").is_file():
        folder = Path(name)
    if not (folder / "model.toml").is_file():
        raise PackError(f"no prompt pack {name!r}; known: {', '.join(pack_names())}")
    chain = _chain(folder)
    tables: dict[str, Any] = {}
    for link in chain:
        tables = _merge(tables, _toml(link / "model.toml"))
    tables.pop("base", None)
    whole = {"files": _files(chain), "model": tables}
    return _read(folder.name, json.dumps(whole, sort_keys=True, ensure_ascii=False, default=str))


@cache
def pack_of(source: str) -> Pack:
    """A pack from its own ``source``, whatever has become of its folder."""
    return _read("a kept pack", source)


def _read(name: str, source: str) -> Pack:
    try:
        whole = json.loads(source)
        model = _ModelFile.model_validate(whole["model"])
        files: dict[str, str] = dict(whole["files"])
    except ValidationError as error:
        raise PackError(f"{name}/model.toml: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PackError(f"{name}: this is no prompt pack: {error}") from error
    if not all(isinstance(text, str) for text in files.values()):
        raise PackError(f"{name}: this is no prompt pack: a file of it is no text")
    return _build(model, files, source)


def _chain(folder: Path) -> list[Path]:
    """Base first, the pack itself last."""
    chain = [folder]
    while base := _toml(chain[0] / "model.toml").get("base"):
        parent = PACKS / str(base)
        if not (parent / "model.toml").is_file() or parent in chain:
            raise PackError(f"{chain[0].name}/model.toml: base {base!r} is no usable pack")
        chain.insert(0, parent)
    return chain


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise PackError(f"{path.parent.name}/{path.name}: {error}") from error


_WHOLE = frozenset({"variants", "decide", "summary", "rollup"})  # tables that replace the base's


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        nested = isinstance(old, dict) and isinstance(value, dict) and key not in _WHOLE
        merged[key] = _merge(old, value) if nested and isinstance(old, dict) else value
    return merged


def _files(chain: list[Path]) -> dict[str, str]:
    files: dict[str, str] = {}
    for link in chain:
        for path in sorted([*link.glob("*.txt"), *link.glob("phrases.*.toml")]):
            files[path.name] = path.read_text(encoding="utf-8").strip()
    return files


def _build(model: _ModelFile, files: Mapping[str, str], source: str) -> Pack:
    tags = Tags(model.tags.silence, model.tags.response, model.tags.delegation, dict(model.tags.variants))
    for spelling, canonical in tags.variants.items():
        if canonical not in tags.all:
            raise PackError(f"{model.family}: variant {spelling!r} names no tag of the pack")
    personas: dict[str, dict[str, str]] = {}
    for name, text in files.items():
        if name.startswith("persona_"):
            persona, language, _ = name.removeprefix("persona_").split(".")
            personas.setdefault(persona, {})[language] = _fill_tags(name, text, tags)
    phrases: dict[str, Phrases] = {}
    summaries: dict[str, str] = {}
    rollups: dict[str, str] = {}
    solvers: dict[str, str] = {}
    for language in model.languages:
        phrases[language] = _phrases(files, language)
        summaries[language] = _template(files, f"summary.{language}.txt", SUMMARY_FIELDS)
        rollups[language] = _template(files, f"rollup.{language}.txt", SUMMARY_FIELDS)
        solvers[language] = _template(files, f"solver.{language}.txt", SOLVER_FIELDS)
        for persona, texts in personas.items():
            if language not in texts:
                raise PackError(f"{model.family}: persona_{persona}.{language}.txt is missing")
    if "default" not in personas:
        raise PackError(f"{model.family}: there is no persona_default")
    for persona in model.watch_personas:
        if persona not in personas:
            raise PackError(f"{model.family}: watch persona {persona!r} has no file")
    time, memory, pixels = model.time, model.memory, model.pixels
    return Pack(
        family=model.family,
        digest=hashlib.sha256(source.encode()).hexdigest()[:16],
        source=source,
        period_ms=time.period_ms,
        frames_per_tick=time.frames_per_tick,
        max_frames_per_tick=time.max_frames_per_tick,
        chunk_frames=memory.chunk_frames,
        rollup_chunks=memory.rollup_chunks,
        long_term_max=memory.long_term_max,
        long_term_keep=memory.long_term_keep,
        overlap_frames=memory.overlap_frames,
        time_tag_per_image=time.time_tag_per_image,
        tags=tags,
        control_tokens=model.control.tokens,
        pixels=Pixels(pixels.min, pixels.max, pixels.summary_max, pixels.multiple),
        tokens_per_pixel=pixels.tokens_per_pixel,
        decide=_sampling(model.sampling.decide),
        summary=_sampling(model.sampling.summary),
        rollup=_sampling(model.sampling.rollup),
        summary_span_tokens=memory.summary_target_tokens,
        languages=model.languages,
        personas=personas,
        phrases=phrases,
        summary_prompts=summaries,
        rollup_prompts=rollups,
        solver_prompts=solvers,
        watch_personas=model.watch_personas,
        quirks=dict(model.quirks),
    )


def _fill_tags(name: str, text: str, tags: Tags) -> str:
    names = {"silence": tags.silence, "response": tags.response, "delegation": tags.delegation or ""}
    _check_fields(name, text, frozenset(names), exact=False)
    return text.format(**names)


def _phrases(files: Mapping[str, str], language: str) -> Phrases:
    name = f"phrases.{language}.toml"
    if name not in files:
        raise PackError(f"{name} is missing")
    try:
        texts = tomllib.loads(files[name])
    except tomllib.TOMLDecodeError as error:
        raise PackError(f"{name}: {error}") from error
    if texts.keys() != PHRASE_FIELDS.keys():
        wrong = ", ".join(sorted(texts.keys() ^ PHRASE_FIELDS.keys()))
        raise PackError(f"{name}: missing or unknown: {wrong}")
    if not all(isinstance(text, str) for text in texts.values()):
        raise PackError(f"{name}: a phrase is a text")
    for key, fields in PHRASE_FIELDS.items():
        _check_fields(f"{name}: {key}", texts[key], fields, exact=True)
    return Phrases(texts)


def _template(files: Mapping[str, str], name: str, fields: frozenset[str]) -> str:
    if name not in files:
        raise PackError(f"{name} is missing")
    _check_fields(name, files[name], fields, exact=True)
    return files[name]


def _check_fields(where: str, text: str, allowed: frozenset[str], *, exact: bool) -> None:
    try:
        used = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError as error:
        raise PackError(f"{where}: {error}") from error
    if used - allowed or (exact and allowed - used):
        wrong = ", ".join(sorted(used ^ allowed if exact else used - allowed))
        raise PackError(f"{where}: fields in braces that are missing or not allowed: {wrong}")


def _sampling(sampling: _Sampling) -> Sampling:
    return Sampling(max_tokens=sampling.max_tokens, params=dict(sampling.model_extra or {}))
