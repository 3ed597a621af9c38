"""Thumbnails of a run: small JPEG data URLs, bounded in size and in number however long the run is."""

from __future__ import annotations

import base64
import io

from PIL import Image

THUMB_SIDE = 176
"""Longest side of a thumbnail in pixels."""
THUMB_QUALITY = 60
SPOKEN_CAP = 120
"""Thumbnails kept of ticks at which something was said."""
QUIET_CAP = 60
"""Thumbnails kept of the other ticks, evenly spread over the run."""


def thumbnail(data: bytes) -> str | None:
    """A JPEG data URL of an encoded picture, or ``None`` for one that can't be decoded."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            # Lets the JPEG decoder skip most of its work on large frames.
            picture.draft("RGB", (THUMB_SIDE, THUMB_SIDE))
            small = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    small.thumbnail((THUMB_SIDE, THUMB_SIDE))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=THUMB_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")


class EvenSample:
    """At most ``cap`` of the items offered, evenly spread, the first one always among them.

    The length of the stream need not be known: whenever the sample is full, every other item goes and
    from then on only half as many are taken.
    """

    def __init__(self, cap: int) -> None:
        if cap < 2:
            raise ValueError("a sample keeps at least two items")
        self._cap = cap
        self._stride = 1
        self._offered = 0
        self._kept: dict[int, str] = {}

    def wants_next(self) -> bool:
        """Whether the next item would be kept: lets the caller skip making it."""
        return self._offered % self._stride == 0

    def offer(self, key: int, item: str | None) -> None:
        """Count an item; keep it if it falls on the stride and is not ``None``."""
        if self.wants_next() and item is not None:
            if len(self._kept) >= self._cap:
                self._kept = dict(list(self._kept.items())[::2])
                self._stride *= 2
            if self.wants_next():
                self._kept[key] = item
        self._offered += 1

    def items(self) -> dict[int, str]:
        return dict(self._kept)


class Filmstrip:
    """Collects thumbnails as a run goes: ticks that spoke apart from the quiet ones, each to its cap."""

    def __init__(self, spoken_cap: int = SPOKEN_CAP, quiet_cap: int = QUIET_CAP) -> None:
        self._spoken = EvenSample(spoken_cap)
        self._quiet = EvenSample(quiet_cap)

    def add(self, tick: int, picture: bytes | None, *, spoke: bool) -> None:
        """Offer the newest frame of a tick, encoded as it was sent; ``None`` for a tick without one."""
        if picture is None:
            return
        sample = self._spoken if spoke else self._quiet
        sample.offer(tick, thumbnail(picture) if sample.wants_next() else None)

    def thumbs(self) -> dict[int, str]:
        """Tick -> data URL, in tick order."""
        return dict(sorted({**self._quiet.items(), **self._spoken.items()}.items()))
