"""From appends to units: what the engine gathers before the model gets it."""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.wire.audio import AudioInput, Samples, parse_format
from orchestrator.wire.errors import InvalidRequest
from tests.fakes.duplex_engine.profiles import EngineProfile
from tests.fakes.duplex_engine.script import Unit

EMPTY: Samples = np.zeros(0, np.float32)


class Refused(Exception):
    """A command was refused; the session goes on."""

    def __init__(self, code: str, message: str, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.code, self.message, self.kind = code, message, kind


@dataclass
class Media:
    """One decoded append."""

    pcm: Samples
    frames: tuple[bytes, ...]
    is_speech: bool
    duration_ms: float
    event_id: str
    end_ms: int | None
    force_listen: bool


@dataclass
class Intake:
    """Buffers of one session. ``auto``: units leave as they fill; otherwise a turn leaves at its commit."""

    session_id: str
    profile: EngineProfile
    auto: bool
    input_format: Any
    rate_hz: int
    silence_rms: float
    resend: bool
    force_listen: int = 0
    speech: bool = False
    appended: bool = False
    _decoder: AudioInput = field(init=False)
    _pcm: Samples = field(default_factory=lambda: EMPTY)
    _ids: list[str] = field(default_factory=list)
    _frames: deque[tuple[bytes, ...]] = field(default_factory=deque)
    _end_ms: int | None = None
    _resent: Samples = field(default_factory=lambda: EMPTY)
    _sealed: list[Unit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._decoder = AudioInput(self.profile.input_rate_hz)

    @property
    def sealed(self) -> bool:
        """A committed turn waits for a response."""
        return bool(self._sealed)

    def decode(self, event: Mapping[str, Any]) -> Media:
        """Raises ``Refused``; nothing is kept then."""
        payload = event.get("audio", event.get("delta"))
        frames = _frames(event.get("video_frames"))
        if not isinstance(payload, str) and not frames:
            raise Refused("bad_event", "an append carries audio or video_frames")
        self._check(isinstance(payload, str) and bool(payload), bool(frames))
        pcm = EMPTY
        if isinstance(payload, str) and payload:
            try:
                name = event.get("format") or event.get("input_audio_format") or self.input_format
                fmt = parse_format(name)
                if self.profile.input_format not in (None, fmt.codec.value):
                    raise Refused("bad_event", f"only {self.profile.input_format} is taken")
                rate = event.get("sample_rate_hz", event.get("sample_rate", fmt.rate or self.rate_hz))
                pcm = self._decoder.decode(payload, fmt, int(rate))
            except InvalidRequest as bad:
                raise Refused(bad.code, bad.message) from bad
        limit = self.profile.append_limit
        if limit is not None and pcm.size > limit:
            raise Refused("bad_event", f"an append holds at most {limit} samples")
        said = event.get("is_speech", event.get("speech"))
        loud = bool(pcm.size) and float(np.sqrt(np.mean(pcm**2))) >= self.silence_rms
        return Media(
            pcm=pcm,
            frames=frames,
            is_speech=bool(said) if isinstance(said, bool) else loud,
            duration_ms=pcm.size * 1000 / self.profile.input_rate_hz,
            event_id=str(event.get("event_id", "")),
            end_ms=event.get("audio_end_ms"),
            force_listen=bool(event.get("force_listen")),
        )

    def add(self, media: Media) -> list[Unit]:
        """Keep an append; at most one whole unit leaves (auto mode)."""
        self.appended = True
        self.speech = self.speech or media.is_speech
        self._end_ms = media.end_ms
        if not media.pcm.size:
            unit = self._unit(EMPTY, media.frames, [media.event_id])
            if self.auto:
                return [unit]
            if self.profile.whole_turn:
                self._frames = deque([media.frames])
                return []
            self._sealed.append(unit)
            return []
        self._pcm = np.concatenate([self._pcm, media.pcm])
        self._ids.append(media.event_id)
        if media.frames:
            if self.profile.whole_turn:
                self._frames.clear()
            self._frames.append(media.frames)
        size = self.profile.unit_samples
        if not self.auto or self._pcm.size < size:
            return []
        whole, self._pcm = self._pcm[:size], self._pcm[size:]
        unit = self._unit(whole, self._frames.popleft() if self._frames else (), self._ids)
        unit.is_speech = self._loud(whole)
        unit.force_listen = media.force_listen or self._forced()
        self._ids = []
        return [unit]

    def commit(self) -> list[Unit]:
        """Close the turn: what is left, padded to a unit (auto mode). In turn mode it is kept as sealed."""
        size = self.profile.unit_samples
        units: list[Unit] = []
        if self._pcm.size or (self._frames and not self.auto):
            short = -self._pcm.size % size if self.speech and not self.profile.whole_turn else 0
            pcm = np.concatenate([self._pcm, np.zeros(short, np.float32)])
            if self.auto and self.resend:
                pcm = self._resent = np.concatenate([self._resent, pcm])
            unit = self._unit(pcm, self._frames.popleft() if self._frames else (), self._ids)
            unit.final, unit.is_speech = True, self.speech
            units.append(unit)
        self._pcm, self._ids, self.speech, self.appended = EMPTY, [], False, False
        self._frames.clear()
        self._decoder.finish()
        if self.auto:
            return units
        self._sealed += units
        return []

    def take_sealed(self) -> list[Unit]:
        """The committed turn: all but its last unit are prefixes."""
        units, self._sealed = self._sealed, []
        for unit in units[:-1]:
            unit.prefix = True
        if units:
            units[-1].creates = True
        return units

    def clear(self) -> None:
        self._pcm, self._ids, self._sealed = EMPTY, [], []
        self._frames.clear()
        self.speech = self.appended = False

    @property
    def buffered_ms(self) -> float:
        return self._pcm.size * 1000 / self.profile.input_rate_hz

    def _unit(self, pcm: Samples, frames: tuple[bytes, ...], ids: list[str]) -> Unit:
        return Unit(self.session_id, -1, pcm, frames, event_ids=tuple(ids), end_ms=self._end_ms)

    def _forced(self) -> bool:
        if self.force_listen <= 0:
            return False
        self.force_listen -= 1
        return True

    def _loud(self, pcm: Samples) -> bool:
        return float(np.sqrt(np.mean(pcm**2))) >= self.silence_rms

    def _check(self, audio: bool, video: bool) -> None:
        given = {name for name, there in (("audio", audio), ("video", video)) if there}
        required = set(self.profile.required)
        missing, foreign = required - given, given - required - self.profile.optional
        if missing or foreign:
            raise Refused("invalid_input_modality", f"missing {sorted(missing)}, not taken {sorted(foreign)}")


def _frames(given: Any) -> tuple[bytes, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise Refused("invalid_video_frames", "video_frames is a list")
    found = [frame for frame in given if frame is not None]
    if len(found) > 2:
        raise Refused("invalid_video_frames", "at most two frames in one append")
    out = []
    for frame in found:
        try:
            data = base64.b64decode(frame, validate=True)
        except (binascii.Error, ValueError, TypeError) as bad:
            raise Refused("invalid_video_frames", "a frame is bare base64") from bad
        if not data.startswith((b"\xff\xd8", b"\x89PNG\r\n\x1a\n")):
            raise Refused("invalid_video_frames", "a frame is JPEG or PNG")
        out.append(data)
    return tuple(out)
