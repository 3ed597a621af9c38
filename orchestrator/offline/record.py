"""What came back, written down: responses with their sound and timings, and what the model did unit by unit.

``ok`` speaks of transport and life cycle alone: that everything announced came to its end, in order, and that
the session closed as asked. Whether an answer is right, or is one, is nobody's claim here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.client.protocol import ConnectionResumed, Incoming
from orchestrator.client.timing import ResponseTimings
from orchestrator.offline.player import Player
from orchestrator.wire import server as wire
from orchestrator.wire.audio import Samples, pcm16_to_float
from orchestrator.wire.items import Response

TOLERATED = frozenset({"playback_ack_too_late", "response_not_active"})
"""Errors that mean only that the other side was faster."""


@dataclass(slots=True)
class Answer:
    """One response. ``created_s``: seconds since the stream began; ``ledger``: cursors last told, in ms;
    ``text_at``, ``transcript_at``: the pieces of both, with the second at which each came."""

    response_id: str
    created_s: float
    spoke: bool = False
    status: str | None = None
    reason: str | None = None
    text: str = ""
    transcript: str = ""
    text_at: list[tuple[float, str]] = field(default_factory=list)
    transcript_at: list[tuple[float, str]] = field(default_factory=list)
    rate_hz: int | None = None
    chunks: list[Samples] = field(default_factory=list)
    audio_ms: int = 0
    ledger: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.status is not None

    @property
    def samples(self) -> Samples:
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class _Act:
    """Something the model did, at seconds of the stream. ``ledger``: of its response, as it was then."""

    at: float
    decision: str
    response_id: str | None = None
    reason: str | None = None
    ledger: Mapping[str, int] | None = None


class Record:
    """:param began: when the stream began, in seconds of the clock that ``now`` is of"""

    def __init__(self, began: float) -> None:
        self.began = began
        self.answers: dict[str, Answer] = {}
        self.player = Player(began)
        self.timings = ResponseTimings()
        self.errors: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.closed: str | None = None
        self.lost: str | None = None
        """Why the session could not be heard to its end."""
        self.resumed = 0
        self.moved_at = began
        """When the newest event of a response came."""
        self._acts: list[_Act] = []
        self._decided: dict[int, str] = {}
        self._notices: list[dict[str, Any]] = []
        self._transcripts: list[dict[str, Any]] = []

    @property
    def open(self) -> bool:
        """A response was announced and has not ended."""
        return any(not answer.done for answer in self.answers.values())

    def take(self, event: Incoming, now: float) -> None:
        self.timings.take(event, now)
        at = now - self.began
        match event:
            case wire.ResponseCreated(response_id=name):
                if name in self.answers:
                    self.faults.append(f"response {name} was announced twice")
                else:
                    self.answers[name] = Answer(name, round(at, 3))
                self.moved_at = now
            case wire.ResponseSpeak(response_id=name):
                self._spoke(name, at)
            case wire.AudioDelta(response_id=name):
                self._audio(event, name, now)
            case wire.TranscriptDelta(response_id=name, delta=delta) if answer := self._answer(name):
                answer.transcript += delta
                answer.transcript_at.append((at, delta))
            case wire.TextDelta(response_id=name, delta=delta) if answer := self._answer(name):
                answer.text += delta
                answer.text_at.append((at, delta))
                self._spoke(name, at)
            case wire.ResponseDone(response_id=name, response=response):
                self._done(name, response, now)
            case wire.ResponseListen(response=response, response_id=name):
                reason = (response.get("metadata") or {}).get("reason")
                self._acts.append(_Act(at, "listen", name, reason))
            case wire.Tick(action=action, unit=unit) if unit is not None:
                self._decided[unit] = "listen" if action == "silence" else "speak"
            case wire.PlaybackAcknowledged(event=body):
                self._ledger(str(body.get("item_id")).removeprefix("item_"), body.get("playback"))
            case wire.TranscriptionCompleted(transcript=words):
                self._transcripts.append({"at_s": round(at, 3), "text": words})
            case wire.Notice(code=code, message=message):
                self._notices.append({"at_s": round(at, 3), "code": code, "message": message})
            case wire.ErrorEvent(error=error):
                if error.get("code") not in TOLERATED:
                    self.errors.append(dict(error))
            case wire.SessionClosed(reason=reason) | wire.SessionExpired(reason=reason):
                self.closed = reason
            case ConnectionResumed():
                self.resumed += 1
            case _:
                pass

    def verdict(self) -> tuple[bool, list[str]]:
        """``ok``, and what speaks against it."""
        against = [*self.faults, *(f"error {error.get('code')}" for error in self.errors)]
        against += [f"response {a.response_id} never ended" for a in self.answers.values() if not a.done]
        if self.closed is None and self.lost is not None:
            against.append(f"the session was lost: {self.lost}")
        elif self.closed != "client_close":
            against.append(f"the session ended with {self.closed}")
        return not against, against

    # --- what is written ------------------------------------------------------------------------------------

    def rows(self, timeline: Mapping[str, Any], sent_at: Mapping[int, float]) -> list[dict[str, Any]]:
        """``decisions.jsonl``: units, then responses, then the session.

        :param timeline: ``input_timeline.json``
        :param sent_at: by unit, seconds of the stream at which its last sample was sent
        """
        rows = [self._unit_row(unit, sent_at) for unit in timeline["units"]]
        rows += [self._answer_row(answer) for answer in self.answers.values()]
        ok, against = self.verdict()
        rows.append(
            {
                "kind": "session",
                "ok": ok,
                "against": against,
                "responses": len(self.answers),
                "sent_bytes": timeline["bytes"],
                "resumed": self.resumed,
                "closed": self.closed,
                "errors": self.errors,
                "notices": self._notices,
                "user_said": self._transcripts,
            }
        )
        return rows

    def _unit_row(self, unit: Mapping[str, Any], sent_at: Mapping[int, float]) -> dict[str, Any]:
        """What the server tells of this unit, else what the model did between it and the next one was sent;
        nobody says that it did it because of this one."""
        number = int(unit["unit"])
        start, end = sent_at.get(number), sent_at.get(number + 1, float("inf"))
        acts = [act for act in self._acts if start is not None and start <= act.at < end]
        spoke = [act for act in acts if act.decision == "speak"]
        last = spoke[-1] if spoke else acts[-1] if acts else None
        named = [act.response_id for act in spoke if act.response_id]
        return {
            "kind": "unit",
            **unit,
            "sent_s": None if start is None else round(start, 3),
            "decision": self._decided.get(number, last.decision if last else None),
            "reason": last.reason if last else None,
            "response_id": named[-1] if named else None,
            "playback": last.ledger if last else None,
        }

    def _answer_row(self, answer: Answer) -> dict[str, Any]:
        return {
            "kind": "response",
            "response_id": answer.response_id,
            "status": answer.status,
            "reason": answer.reason,
            "created_s": answer.created_s,
            "text": answer.text,
            "transcript": answer.transcript,
            "pieces": [
                {"at_s": round(at, 3), "text": text} for at, text in answer.transcript_at or answer.text_at
            ],
            "audio_ms": answer.audio_ms,
            "chunks": len(answer.chunks),
            "sample_rate_hz": answer.rate_hz,
            "playback": answer.ledger,
            "timing": self.timings.report(answer.response_id),
        }

    # --- parts ----------------------------------------------------------------------------------------------

    def _answer(self, name: str) -> Answer | None:
        answer = self.answers.get(name)
        if answer is None:
            self.faults.append(f"output of {name} came before it was announced")
        elif answer.done:
            self.faults.append(f"output of {name} came after it had ended")
            return None
        return answer

    def _spoke(self, name: str, at: float) -> None:
        if (answer := self.answers.get(name)) is not None:
            answer.spoke = True
        self._acts.append(_Act(at, "speak", name))

    def _audio(self, event: wire.AudioDelta, name: str, now: float) -> None:
        self.moved_at = now
        if (answer := self._answer(name)) is None:
            return
        samples = pcm16_to_float(base64.b64decode(event.delta))
        answer.spoke, answer.rate_hz = True, event.sample_rate_hz
        answer.chunks.append(samples)
        told = event.metadata.get("audio_duration_ms")
        answer.audio_ms = int(told) if isinstance(told, int) else self._ms(answer)
        self._ledger(name, event.metadata.get("playback"))
        self._acts.append(_Act(now - self.began, "speak", name, ledger=dict(answer.ledger)))
        self.player.add(name, samples, event.sample_rate_hz, now)

    def _ms(self, answer: Answer) -> int:
        return sum(chunk.size for chunk in answer.chunks) * 1000 // (answer.rate_hz or 1)

    def _done(self, name: str, response: Response, now: float) -> None:
        self.moved_at = now
        answer = self.answers.get(name)
        if answer is None or answer.done:
            self.faults.append(f"response {name} ended {'twice' if answer else 'unannounced'}")
            return
        details = response.status_details or {}
        answer.status, answer.reason = response.status, details.get("reason")
        if response.status == "cancelled":
            self.player.cut(name, now)

    def _ledger(self, name: str, cursors: Any) -> None:
        """Cursors only grow; what is told late changes nothing."""
        if name in self.answers and isinstance(cursors, Mapping):
            ledger = self.answers[name].ledger
            for key, value in cursors.items():
                if isinstance(value, int):
                    ledger[key] = max(ledger.get(key, 0), value)
