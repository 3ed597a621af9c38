"""How sessions fit into an engine: from settings, pack and the self-check's facts to plain values."""

from __future__ import annotations

from bridges.chat_engine import VllmChat
from bridges.frames import FrameBounds
from bridges.token_route import Known, TokenRoute
from engine_launch.facts import EngineFacts, TokenFacts
from memory.plan import Limits as WindowLimits
from orchestrator.backends.replay.decide import DecideOptions, DecisionPoint
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.engine_setup import Engine
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.setting_groups import MemoryGroup
from orchestrator.settings import Settings
from prompts.pack import Pack

LIVE_TICKS = 32
"""Decisions of all sessions in flight at one engine; it batches them."""
BACKGROUND = 2
"""Prewarms and summaries that one engine reads at a time."""
TEXTS = 16
"""Summaries in flight at one engine, those that it is writing too: it does that beside all else."""
_IMAGE_CACHE_BYTES_PER_PIXEL = 6
"""What a processed frame takes of the engine's image cache."""

_UNKNOWN_IMAGE_CACHE = 4 * 2**30
"""The engine's own default. Believing in too much costs a retry, never a wrong answer."""


def chat_engine(settings: Settings, engine: Engine) -> VllmChat:
    facts, secret = engine.facts, settings.engine_api_key
    frame = image_bytes(engine.pack.pixels.max)
    room = facts.image_cache_bytes or _UNKNOWN_IMAGE_CACHE
    return VllmChat(
        engine.url,
        facts.model,
        api_key=secret.get_secret_value() if secret else None,
        uuid_parts=facts.uuid_parts,
        held_images=max(1, room // frame),
        token_route=token_route(facts.tokens),
        priority=facts.priority,
        max_connections=LIVE_TICKS + BACKGROUND + TEXTS + 8,
    )


def token_route(facts: TokenFacts | None) -> TokenRoute | None:
    """What the self-check learned of the token route, as the bridge takes it."""
    if facts is None:
        return None
    return TokenRoute(
        kind="content_parts" if facts.kind == "content_parts" else "features",
        image_text=facts.image_text,
        pad=facts.pad,
        asked=Known(facts.asked_messages, facts.asked),
        answered=Known(facts.answered_messages, facts.answered),
        defaults=facts.defaults,
        spelled=facts.spelled,
    )


def image_bytes(pixels: int) -> int:
    """What a picture of that area takes of the engine's image cache."""
    return pixels * _IMAGE_CACHE_BYTES_PER_PIXEL


def frame_bounds(pack: Pack, max_bytes: int) -> FrameBounds:
    pixels = pack.pixels
    return FrameBounds(pixels.min, pixels.max, pixels.multiple, max_bytes=max_bytes)


def decide_options(settings: Settings) -> DecideOptions:
    decision = settings.decision
    return DecideOptions(
        gate=decision.gate,
        threshold=decision.threshold,
        dedup_ratio=decision.dedup_ratio,
        dedup_rearm_s=decision.dedup_rearm_s,
    )


def session_limits(settings: Settings) -> SessionLimits:
    """Whatever one request may bring must find room, or its retry could never succeed."""
    realtime = settings.realtime
    return SessionLimits(
        max_pending_input_bytes=max(realtime.input_bytes, settings.limits.body_bytes),
        max_pending_commits=realtime.commits,
        journal_bytes=realtime.journal_bytes,
        journal_ttl_s=realtime.journal_s,
        history_items=realtime.history_items,
        playback_ledgers=max(8, realtime.history_items // 4),
        outbox=OutboxLimits(realtime.output_bytes, realtime.output_events),
    )


def window_limits(pack: Pack, facts: EngineFacts, memory: MemoryGroup) -> WindowLimits:
    """How the pack's window, as the settings change it, fits into this engine."""
    chunk, overlap = memory.chunk_frames, memory.overlap_frames
    return WindowLimits(
        chunk_frames=pack.chunk_frames if chunk is None else chunk,
        max_images=facts.max_images,
        context_tokens=facts.context_tokens,
        reply_tokens=pack.decide.max_tokens,
        max_frames_per_tick=pack.max_frames_per_tick,
        rollup_chunks=pack.rollup_chunks,
        long_term_max=pack.long_term_max,
        long_term_keep=pack.long_term_keep,
        overlap_frames=pack.overlap_frames if overlap is None else overlap,
        keep=memory.keep,
    )


def engine_limits(pack: Pack, facts: EngineFacts, salt: str, *, constrained: bool = False) -> EngineLimits:
    """What a request uses of this engine."""
    point = None
    if facts.decision_index is not None and {"response", "silence"} <= set(facts.decision_ids):
        point = DecisionPoint(
            facts.decision_index, facts.decision_ids["response"], facts.decision_ids["silence"]
        )
    audited = facts.prefix_cache and facts.reports_cached
    return EngineLimits(
        block_tokens=facts.block_tokens if audited else 0,
        silence_stop_id=facts.tag_ids.get(pack.tags.silence),
        decision=point,
        constrained=constrained,
        cache_salt=salt or None,
    )
