"""What a replay session may be told besides its pack: plain values with defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.plan import Limits
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.backends.replay.request import EngineLimits


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """
    :param engine: what the self-check found of the engine
    :param window: bounds within which prompts are planned
    :param tenant_key: keys the frame ids towards the engine; same key, same picture, same id
    :param jitter: share by which the first chunk is longer or shorter, -0.2 to 0.2, so that sessions
        started together don't hand over together
    :param max_pixels: area of the largest picture, for sessions that ask for none; default: the pack's
    :param text_scale: times its estimate that a text takes, by the served model's tokenizer
    :param auto: every tick may speak when the client says nothing about it
    :param max_query_chars: a longer query is refused
    :param delegations: delegated questions in flight; ``delegation_s``: seconds each may take
    :param solver_frames: recent frames that a solver sees
    :param outputs: outputs that may wait for the session to read them
    :param max_sessions: that this service admits
    """

    tenant_key: bytes
    engine: EngineLimits = EngineLimits()  # noqa: RUF009  frozen
    window: Limits = field(default_factory=Limits)
    decide: DecideOptions = DecideOptions()  # noqa: RUF009  frozen
    jitter: float = 0.0
    persona: str = "default"
    language: str = "en"
    max_pixels: int | None = None
    text_scale: float = 1.0
    auto: bool = True
    max_query_chars: int = 8000
    delegations: int = 4
    delegation_s: float = 60.0
    solver_frames: int = 8
    outputs: int = 256
    max_sessions: int = 1
