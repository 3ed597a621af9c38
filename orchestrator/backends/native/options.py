"""What a native session may be told besides its profile: plain values with defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DelegatingOptions:
    """:param in_flight: questions of one session in work at a time
    :param deadline_s: for one question, all solvers together
    :param frames: newest pictures that go along
    """

    in_flight: int = 4
    deadline_s: float = 60.0
    frames: int = 8


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """Times in seconds.

    :param max_sessions: that this service admits
    :param places: of all engines together, those kept for changing over among them; ``None``: as the profile
        has it for one engine
    :param max_pending_bytes: of input that no engine has taken yet
    :param outputs: outputs that may wait for the session to read them
    :param patience_s: how long an append waits to learn that a write failed
    :param pair_s: how long a chunk of speech waits for its words
    :param cancel_s: how long the engine may take to end what was cancelled
    :param wedged_s: without any word of an engine that has input and owes an answer, it counts as lost
    :param mute_s: the same for one that has not said a word since the session began
    :param lives: engine sessions that may be lost in ``lives_s``; one more ends the session
    """

    max_sessions: int = 1
    places: int | None = None
    max_pending_bytes: int = 16 * 1024 * 1024
    outputs: int = 256
    patience_s: float = 0.2
    pair_s: float = 0.05
    cancel_s: float = 5.0
    wedged_s: float = 20.0
    mute_s: float = 120.0
    lives: int = 3
    lives_s: float = 60.0
    delegating: DelegatingOptions = DelegatingOptions()
