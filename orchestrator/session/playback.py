"""The playback ledger: how much of each response was generated, sent, played and committed, in ms.

Each cursor only grows; normally generated >= sent >= played >= committed, but acks are not clamped.
``generated`` grows when a chunk is admitted to the outbox, ``sent`` when it is sequenced after its last stale
check. Only what was committed counts as heard, and never more than any truncation allows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.session.fence import Fence
from orchestrator.session.items import assistant_item_id
from orchestrator.session.told import Heard
from orchestrator.wire.errors import InvalidRequest, NotFound

PATIENCE_S = 5.0
"""How long past its length an ended response counts as being played without any ack."""

Marks = tuple[tuple[int, int], ...]
"""(characters spoken so far, audio end in ms), cumulative."""


class PlaybackPolicy(StrEnum):
    """How ``committed`` advances: by the client's acks, or at playout speed from ``sent`` for clients that
    never ack."""

    ACK_ONLY = "ack_only"
    WALL_CLOCK = "wall_clock"


@dataclass(frozen=True, slots=True)
class Cursors:
    """A snapshot, in ms."""

    generated_ms: int = 0
    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0


def heard_prefix(text: str, marks: Marks, total_ms: int, heard_ms: int) -> str:
    """The text spoken within ``heard_ms`` of a response of ``total_ms``.

    Linear between marks, rounded down to whole characters; without marks proportional to time; trailing
    space is trimmed.
    """
    if heard_ms <= 0 or total_ms <= 0:
        return ""
    length = len(text)
    before = (0, 0)
    points = [*sorted(((min(c, length), ms) for c, ms in marks), key=lambda m: m[1]), (length, total_ms)]
    for after in points:
        (c0, t0), (c1, t1) = before, after
        if heard_ms < t1:
            chars = c0 + (c1 - c0) * (heard_ms - t0) // (t1 - t0)
            return text[: max(chars, 0)].rstrip()
        before = after
    return text.rstrip()


class Playback:
    """The ledger of one response.

    :param spoken: the response has an audio channel; text alone is heard as it is emitted
    :param aligned: text and audio advance together; otherwise all of the text is heard, or none
    """

    def __init__(self, response_id: str, fence: Fence, *, spoken: bool, aligned: bool = True) -> None:
        self.response_id = response_id
        self.fence = fence
        self.item_id = assistant_item_id(response_id)
        self.spoken = spoken
        self.text = ""
        """The whole text, known when the response has ended."""
        self.completed = False
        self.void = False
        """It failed: nothing of it counts as heard."""
        self.generated_ms = 0
        self.sent_ms = 0
        self.played_ms = 0
        self.committed_ms = 0
        self.ended_at: float | None = None
        """When the last of it was generated, in monotonic seconds."""
        self.stopped = False
        """Nothing more of it will be played."""
        self.told: Heard | None = None
        """What the backend was told last of how much of it was heard."""
        self.told_ms = 0
        """What the backend was told by the wall clock."""
        self._aligned = aligned
        self._marks: list[tuple[int, int]] = []
        self._cap_ms: int | None = None

    @property
    def marks(self) -> Marks:
        return tuple(self._marks)

    @property
    def total_ms(self) -> int:
        return max(self.generated_ms, self.sent_ms)

    @property
    def heard_ms(self) -> int:
        return self.committed_ms if self._cap_ms is None else min(self.committed_ms, self._cap_ms)

    @property
    def truncated(self) -> bool:
        """The client said where the user stopped hearing it."""
        return self._cap_ms is not None

    @property
    def audible_ms(self) -> int:
        """Its length, as far as it was not truncated."""
        return self.total_ms if self._cap_ms is None else min(self.total_ms, self._cap_ms)

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def unplayed(self) -> bool:
        """Sent audio was not committed yet."""
        return not self.stopped and self.sent_ms > self.committed_ms

    def active(self, now: float) -> bool:
        """Sent audio is still being played, as far as the ledger knows.

        A client that never acknowledges anything does not hold up the session for ever.
        """
        late = self.ended_at is not None and now > self.ended_at + self.total_ms / 1000 + PATIENCE_S
        return self.unplayed and not late

    @property
    def settled(self) -> bool:
        """Nothing about it can change any more, but for a later truncation."""
        return self.ended and (self.stopped or self.committed_ms >= self.total_ms)

    def cursors(self) -> Cursors:
        return Cursors(self.generated_ms, self.sent_ms, self.played_ms, self.committed_ms)

    def generate(self, duration_ms: int, marks: Marks = ()) -> None:
        self.generated_ms += duration_ms
        self._marks.extend(marks)

    def send(self, duration_ms: int) -> None:
        self.sent_ms += duration_ms

    def ack(self, played_ms: int, committed_ms: int) -> None:
        self.played_ms = max(self.played_ms, played_ms)
        self.committed_ms = max(self.committed_ms, committed_ms)

    def truncate(self, audio_end_ms: int) -> None:
        """Cap what can ever be heard; the least of all truncations holds."""
        self._cap_ms = audio_end_ms if self._cap_ms is None else min(self._cap_ms, audio_end_ms)
        self.committed_ms = max(self.committed_ms, min(self.total_ms, audio_end_ms))
        self.stopped = True

    def end(self, now: float, text: str, status: str, *, cut: bool = False) -> None:
        """No more will come. A response that was cancelled or failed is not played any further; of one that
        was ``cut`` at its limit of tokens there is no more than the user has."""
        self.ended_at, self.text = now, text
        self.completed, self.void = status == "completed" or cut, status == "failed"
        self.stopped = self.stopped or status in ("cancelled", "failed")

    def heard(self) -> str:
        """What of an ended response's text reached the user so far.

        One that completed without any audio is heard whole; text alone is heard as it is emitted.
        """
        if self.void:
            return ""
        if not self.spoken or (self.total_ms == 0 and self.completed):
            return self.text
        if not self._aligned:
            return self.text if 0 < self.total_ms <= self.heard_ms else ""
        return heard_prefix(self.text, self.marks, self.total_ms, self.heard_ms)

    @property
    def heard_whole(self) -> bool:
        """All of an ended response reached the user."""
        return self.completed and (not self.spoken or self.heard_ms >= self.total_ms)


class PlaybackBook:
    """The ledgers of a session's responses, oldest first; settled ones are kept for late acks.

    :param kept: ledgers remembered at a time; the oldest is forgotten first
    """

    def __init__(self, policy: PlaybackPolicy, kept: int = 256) -> None:
        self.policy = policy
        self._kept = kept
        self._ledgers: OrderedDict[str, Playback] = OrderedDict()
        self._unsettled: dict[str, Playback] = {}
        self._clock: float | None = None
        self._carry_ms = 0.0
        self.paused = False
        """The client plays nothing now."""

    def open(self, response_id: str, fence: Fence, *, spoken: bool, aligned: bool = True) -> Playback:
        ledger = self._ledgers[response_id] = Playback(response_id, fence, spoken=spoken, aligned=aligned)
        self._unsettled[response_id] = ledger
        while len(self._ledgers) > self._kept:
            oldest, _ = self._ledgers.popitem(last=False)
            self._unsettled.pop(oldest, None)
        return ledger

    def get(self, response_id: str) -> Playback | None:
        return self._ledgers.get(response_id)

    def playing(self, now: float) -> list[Playback]:
        """Ledgers of which sent audio is still being played, oldest first."""
        return [ledger for ledger in self._still_open() if ledger.active(now)]

    def last(self) -> Playback | None:
        return next(reversed(self._ledgers.values()), None)

    def advance(self, now: float) -> tuple[Playback, ...]:
        """Let the wall clock play what was sent, one response after the other; those that advanced.

        Call it before ``sent`` grows and before anything is asked of the ledgers. ``now``: seconds.
        """
        elapsed_ms = 0.0 if self._clock is None else round((now - self._clock) * 1000, 3)
        self._clock = now
        advanced: list[Playback] = []
        if self.paused or self.policy is not PlaybackPolicy.WALL_CLOCK:
            return ()
        budget = elapsed_ms + self._carry_ms
        self._carry_ms = 0.0
        for ledger in self._still_open():
            if ledger.stopped or ledger.settled:
                continue
            step = min(int(budget), ledger.sent_ms - ledger.committed_ms)
            if step > 0:
                ledger.ack(ledger.committed_ms + step, ledger.committed_ms + step)
                advanced.append(ledger)
                budget -= step
            if ledger.sent_ms > ledger.committed_ms:
                self._carry_ms = budget  # the fraction of a ms that is left plays on
                break
            if not ledger.ended:
                break  # the player waits for more of this one
        return tuple(advanced)

    def _still_open(self) -> list[Playback]:
        """Ledgers of which more may be played, oldest first: what is settled stays so, and most are."""
        settled = [response_id for response_id, ledger in self._unsettled.items() if ledger.settled]
        for response_id in settled:
            del self._unsettled[response_id]
        return list(self._unsettled.values())

    def apply(self, ledger: Playback, played_ms: float, committed_ms: float | None) -> None:
        """Enter an ack; fractions of a ms are cut."""
        played = max(0, int(played_ms))
        ledger.ack(played, played if committed_ms is None else max(0, int(committed_ms)))

    def target(
        self, now: float, response_id: str | None, item_id: str | None, active_id: str | None
    ) -> Playback | None:
        """The ledger that an ack means: named by response or item, else the only one still being played,
        else the active response's; ``None`` when there is none of these.

        Raises ``playback_item_mismatch`` and ``playback_item_not_found``.
        """
        if response_id is not None and item_id is not None and item_id != assistant_item_id(response_id):
            raise InvalidRequest(
                f"item {item_id} is not of response {response_id}; name one of them",
                code="playback_item_mismatch",
            )
        if response_id is None and item_id is not None:
            response_id = item_id.removeprefix("item_")
            if item_id == response_id:
                raise _unknown(item_id)
        if response_id is not None:
            if (named := self._ledgers.get(response_id)) is None:
                raise _unknown(item_id or response_id)
            return named
        playing = self.playing(now)
        if len(playing) == 1:
            return playing[0]
        return self._ledgers.get(active_id) if active_id is not None else None

    def statistics(self) -> dict[str, int]:
        unplayed = sum(ledger.unplayed for ledger in self._ledgers.values())
        return {"ledgers": len(self._ledgers), "unplayed": unplayed}


def _unknown(name: str) -> NotFound:
    return NotFound(f"no audio of {name} is known here", code="playback_item_not_found")
