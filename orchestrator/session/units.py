"""Input units: what one append carries. Open by content; nothing here is named after audio."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Modality(StrEnum):
    AUDIO = "audio"
    VISION = "vision"
    OMNI = "omni"


@dataclass(frozen=True, slots=True)
class FrameInput:
    """One encoded picture as the client sent it, not yet decoded or checked.

    :param data: JPEG or PNG bytes
    :param media_time_ms: capture time on the session's media clock; the first frame of a session is 0
    :param frame_id: the client's id; a repeated id is not a new frame. ``None``: the session mints one
    """

    data: bytes
    media_time_ms: int
    frame_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputUnit:
    """What one ``AppendInput`` carries: a frame group, PCM, or both. A frame group alone is complete.

    :param frames: at most two per append
    :param pcm: float32 little-endian mono samples at the backend's rate, or ``None``
    :param lossless: the source waits (files, ``--pace fast``): its frames are never thinned
    :param speech: the audio holds speech, as far as anybody knows
    :param start_ms: where its samples begin on the input's own clock, if anybody knows
    :param parts: what it was joined of, in order: which frames came with which samples
    """

    frames: tuple[FrameInput, ...] = ()
    pcm: bytes | None = None
    lossless: bool = False
    speech: bool | None = None
    start_ms: float | None = field(default=None, kw_only=True)
    parts: tuple[InputUnit, ...] = ()

    def joined(self, later: InputUnit) -> InputUnit:
        """One unit of both: samples and frames in order."""
        pcm = (self.pcm or b"") + (later.pcm or b"")
        heard = [each.speech for each in (self, later) if each.speech is not None]
        return InputUnit(
            (*self.frames, *later.frames),
            pcm or None,
            self.lossless or later.lossless,
            any(heard) if heard else None,
            (*(self.parts or (self,)), *(later.parts or (later,))),
            start_ms=self.start_ms if self.pcm else later.start_ms,
        )

    @property
    def modality(self) -> Modality:
        if self.frames and self.pcm:
            return Modality.OMNI
        return Modality.VISION if self.frames else Modality.AUDIO

    @property
    def size(self) -> int:
        """Bytes charged against the pending-input limit until the backend has taken the unit."""
        return sum(len(f.data) for f in self.frames) + len(self.pcm or b"")
