"""Frames that may have killed an engine, pure.

A frame that was new in the request during which an engine died is a suspect. Suspects are shown again one
at a time; one is quarantined only when an engine dies a second time with it alone in flight. Suspicion
ends when the frame was answered or its window is over, and never begins when our own launcher stopped
the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Suspects:
    def __init__(self) -> None:
        self._suspects: dict[str, str] = {}  # frame id -> uuid
        self._quarantined: set[str] = set()  # uuids

    def any(self, frame_ids: Iterable[str]) -> bool:
        return any(frame_id in self._suspects for frame_id in frame_ids)

    def riders(self, frame_ids: Sequence[str]) -> tuple[str, ...]:
        """Which of the waiting frames (oldest first) may ride the next tick: up to the first suspect alone.

        Frames before the first suspect ride without it; a suspect rides alone.
        """
        riders: list[str] = []
        for frame_id in frame_ids:
            if frame_id in self._suspects:
                return tuple(riders) or (frame_id,)
            riders.append(frame_id)
        return tuple(riders)

    def died(self, in_flight: Sequence[tuple[str, str]], *, stopped_by_us: bool) -> str | None:
        """An engine died with these new frames (id, uuid) in flight. Returns the frame to quarantine."""
        if stopped_by_us:
            return None
        if len(in_flight) == 1 and in_flight[0][0] in self._suspects:
            frame_id, uuid = in_flight[0]
            del self._suspects[frame_id]
            self._quarantined.add(uuid)
            return frame_id
        self._suspects.update(in_flight)
        return None

    def answered(self, frame_ids: Sequence[str]) -> None:
        for frame_id in frame_ids:
            self._suspects.pop(frame_id, None)

    def is_quarantined(self, uuid: str) -> bool:
        return uuid in self._quarantined

    def window_over(self) -> None:
        self._suspects.clear()
        self._quarantined.clear()
