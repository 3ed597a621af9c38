"""``run.json``: what a run was made with: so its figures can be told apart, and its sessions done again."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from engine_launch.errors import LaunchError
from engine_launch.facts import EngineFacts
from engine_launch.profile import load_profile
from evals.readers.clip import Clip
from evals.readers.jsonl import dump_clip
from evals.shapes import OPEN, Count, Number, Stamp, fault_of, told
from memory.render import RENDERER
from orchestrator.engine_setup import Engine
from orchestrator.native_setup import NativeEngines
from orchestrator.settings import Settings
from orchestrator.version import vigil_version
from prompts.loader import PackError, pack_of

FORMAT = "vigil-eval-1"
RUN, PACK, CLIPS, FRAMES = "run.json", "pack.txt", "clips", "frames"

KEPT_GROUPS = {"limits", "decision", "memory", "delegation", "timeouts"}
"""Settings that shape what a session is told and shown; no address and no key is among them."""
_SAME = ("kind", "dataset", "settings", "engine", "pack", "session", "seed", "pace")
"""What must be the same for a run to go on in its folder."""
_OF_A_BOOT = frozenset({"kv_tokens", "image_cache_bytes", "routes", "tokens"})
"""Facts of an engine that may be others after it was started again; no answer depends on them."""


class RunError(Exception):
    """A run can't begin, go on or be read. The message says what to change."""


class Kind(StrEnum):
    """Of the engine: one that is asked tick by tick, or a full-duplex one."""

    TICKS = "ticks"
    NATIVE = "native"


def settings_data(settings: Settings) -> dict[str, Any]:
    """The settings as a record has them, JSON-ready."""
    data = settings.model_dump(mode="json", include=KEPT_GROUPS | {"persona", "language", "family", "model"})
    data["solvers"] = [{"name": each.name, "model": each.model} for each in settings.solvers]
    data["summarizer"] = {"model": settings.summarizer.model, "images": settings.summarizer.images}
    return data


def settings_of(data: Mapping[str, Any]) -> Settings:
    """The settings of a record; whatever asks the outside world is left out. Raises ``RunError``."""
    kept = {name: value for name, value in data.items() if name not in ("solvers", "summarizer")}
    try:
        return Settings(**kept)
    except ValidationError as error:
        raise RunError(f"the settings of the run, in its {RUN}, are none: {told(error)}") from error


def dataset_digest(clips: Sequence[Clip]) -> str:
    digest = hashlib.sha256()
    for clip in clips:
        digest.update(dump_clip(clip) + b"\n")
    return digest.hexdigest()[:32]


def facts_of(settings: Settings, engine: Engine) -> dict[str, Any]:
    """What ``run.json`` says of an engine that answers requests, and of how it was asked."""
    return _facts(settings, Kind.TICKS, engine.facts) | {
        "pack": {"family": engine.pack.family, "digest": engine.pack.digest},
        "period_ms": engine.pack.period_ms,
        "seed": settings.decision.seed,
    }


def native_facts_of(settings: Settings, engines: NativeEngines, session: Mapping[str, Any]) -> dict[str, Any]:
    """The same of full-duplex engines.

    :param session: what sessions are opened with; a recording by its digest
    """
    facts = EngineFacts(engines.model, version=engines.version)
    return _facts(settings, Kind.NATIVE, facts) | {
        "pack": {"family": engines.profile.family, "digest": engines.profile.digest},
        "period_ms": engines.profile.audio.unit_ms,
        "session": dict(session),
        "seed": None,
        "pace": "realtime",
    }


def _facts(settings: Settings, kind: Kind, facts: EngineFacts) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": kind.value,
        "outcome": "running",
        "settings": settings_data(settings),
        "engine": facts.to_dict(),
        "profile": _profile(settings.engine),
        "versions": {
            "vigil": vigil_version(),
            "renderer": RENDERER,
            "engine": facts.version,
            "python": platform.python_version(),
        },
    }


def _profile(named: str) -> dict[str, str] | None:
    """The launch profile that the engine was named by, and a digest of what it says."""
    try:
        profile = load_profile(named)
    except LaunchError:
        return None
    said = orjson.dumps(profile.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return {"name": named, "digest": hashlib.sha256(said).hexdigest()[:32]}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a run that is to go on was made with otherwise, as dotted names."""
    found: list[str] = []
    for name in _SAME:
        found += _differ(name, old.get(name), new.get(name))
    return [each for each in found if each.partition("engine.")[2].partition(".")[0] not in _OF_A_BOOT]


def _differ(name: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            each
            for key in sorted({*old, *new})
            for each in _differ(f"{name}.{key}", old.get(key), new.get(key))
        ]
    return [name]


def read_manifest(folder: Path) -> dict[str, Any]:
    """Raises ``RunError``."""
    try:
        found: Any = orjson.loads((folder / RUN).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{folder} holds no run: its {RUN} can't be read ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RunError(f"{folder / RUN} is of another format than {FORMAT}")
    made = {"kind": Kind.TICKS.value, **found}  # runs of old do not say it: there was no other kind
    shape = _NATIVE if made["kind"] == Kind.NATIVE else _TICKS
    if (wrong := fault_of(shape, made) or _no_engine(made["engine"])) is not None:
        raise RunError(f"{folder / RUN}: {wrong}")
    return made


def read_taped(folder: Path) -> dict[str, Any]:
    """``read_manifest`` of a run whose sessions were asked tick by tick, and so are on tape.

    :raises RunError: also where it is of the other kind
    """
    found = read_manifest(folder)
    if found["kind"] == Kind.NATIVE:
        raise RunError(
            f"{folder} was played to a full-duplex engine: what that engine holds is on no tape, so nothing"
            " of it can be done or asked again; watch its clips anew with vigil eval run and another --out"
        )
    return found


def engine_of(folder: Path, found: Mapping[str, Any]) -> Engine:
    """The engine of a run as it was; there is nothing behind its address. Raises ``RunError``."""
    try:
        pack = pack_of((folder / PACK).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, PackError) as error:
        raise RunError(f"the prompt pack of {folder} can't be read: {error}") from error
    return Engine("http://recorded.invalid", EngineFacts.from_dict(found["engine"]), pack)


# --- what must be in it -------------------------------------------------------------------------------


def _no_engine(facts: Mapping[str, Any]) -> str | None:
    try:
        _FACTS.validate_json(orjson.dumps(facts), strict=True)
    except ValidationError as error:
        return f"engine.{told(error)}"
    return None


class _DataSet(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: str
    format: str
    digest: str
    clips: Count


class _Summarizer(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    model: str | None
    images: bool


class _Settings(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    solvers: list[dict[str, Any]]
    summarizer: _Summarizer


class _Named(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: str
    digest: str


class _Pack(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    family: str
    digest: str


class _Versions(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    vigil: str
    renderer: int
    engine: str | None


class _Ticks(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    kind: Literal["ticks"]
    outcome: str
    dataset: _DataSet
    settings: _Settings
    engine: dict[str, Any]
    profile: _Named | None
    pack: _Pack
    versions: _Versions
    period_ms: Annotated[int, Field(gt=0)]
    seed: int | None
    pace: str
    streams: Count
    key: Annotated[str, Field(pattern=r"^([0-9a-f]{2})+$")]
    started_at: Stamp
    wall_s: Number


class _Session(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    ref_audio_sha256: str | None


class _Native(_Ticks):
    kind: Literal["native"]  # type: ignore[misc]
    session: _Session


_FACTS, _TICKS, _NATIVE = TypeAdapter(EngineFacts), TypeAdapter[Any](_Ticks), TypeAdapter[Any](_Native)
