"""What an engine says, as outputs of a session. Sans-IO: events go in, outputs come out.

A chunk of speech waits for the words that the engine sends right behind it, so that both leave as one. What
belongs to an epoch that was cancelled, or to a response that is over, is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable

from bridges.duplex_client.link import (
    AudioChunk,
    EngineEvent,
    Heard,
    Listening,
    ResponseCreated,
    ResponseDone,
    Speaking,
    SpokenText,
    StageMetrics,
    UserSpeech,
)
from orchestrator.backends.native.responses import Bound, Responses
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Decision,
    Metrics,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TurnEnd,
    UserTranscript,
)

MODEL_LISTEN = "model_listen"
CONTINUATION_LIMIT = "continuation_limit"
SILENCE_OR_NOISE = "silence_or_noise"
_SAID = {"completed": "completed", "failed": "failed"}
"""How a response can end by the engine's own doing; cancelled unasked counts as incomplete."""


class Translator:
    """:param tick: numbers the decisions"""

    def __init__(self, responses: Responses, tick: Callable[[], int]) -> None:
        self._responses = responses
        self._tick = tick
        self._held: AudioChunk | None = None
        self._behind: list[BackendOutput] = []  # figures that came while a chunk waited for its words
        self.dropped = 0
        """Events of responses that were over, or cancelled."""

    @property
    def holds(self) -> bool:
        """A chunk waits for its words."""
        return self._held is not None

    def take(self, event: EngineEvent) -> list[BackendOutput]:
        """Outputs of one event, in order."""
        if isinstance(event, SpokenText) and event.spoken and self._is_for_held(event):
            chunk, self._held = self._held, None
            assert chunk is not None
            return self._audio(chunk, event.text)
        outputs = self.flush() if not isinstance(event, StageMetrics | Speaking) else []
        match event:
            case ResponseCreated(response_id=response_id):
                outputs += self._created(response_id)
            case Speaking(response_id=response_id):
                bound = self._responses.of(response_id)
                outputs += [] if self._is_over(bound) else self._spoke(bound)
            case AudioChunk():
                if not self._is_over(self._responses.of(event.response_id)):
                    self._held = event
            case SpokenText(response_id=response_id, text=text):
                bound = self._responses.of(response_id)
                if text and not self._is_over(bound):
                    bound.text += text
                    outputs += [*self._spoke(bound), TextDelta(bound.fence, text)]
            case Listening():
                outputs += self._listens(event)
            case ResponseDone():
                outputs += self._done(event)
            case StageMetrics():
                outputs += self._measured(event)
            case Heard(transcript=transcript):
                outputs.append(UserTranscript(self._responses.fence, transcript, final=True))
            case UserSpeech(started=True, at_ms=at_ms):
                outputs.append(SpeechStarted(self._responses.fence, at_ms))
            case UserSpeech(at_ms=at_ms):
                outputs.append(SpeechStopped(self._responses.fence, at_ms))
            case _:
                pass
        return outputs

    def flush(self) -> list[BackendOutput]:
        """The chunk that waited, without words."""
        chunk, self._held = self._held, None
        return [] if chunk is None else self._audio(chunk, "")

    def forget_held(self) -> None:
        """A cancel came: nothing that waits is said any more."""
        self._held = None
        self._behind.clear()

    def end(self, bound: Bound, status: str, reason: str | None) -> list[BackendOutput]:
        """End a response on our own account."""
        outputs = self.flush()
        self._responses.end(bound)
        return [*outputs, TurnEnd(bound.fence, status, reason)]

    def stopped(self, bound: Bound) -> list[BackendOutput]:
        """The model was given all the silence that it may have for one response."""
        decision = Decision(
            bound.fence, self._tick(), Action.SILENCE, reason=CONTINUATION_LIMIT, final=bound.visible
        )
        return [*self.flush(), decision, *self.end(bound, "completed", None)]

    # --- parts ----------------------------------------------------------------------------------------

    def _is_for_held(self, event: SpokenText) -> bool:
        return self._held is not None and self._held.response_id == event.response_id

    def _is_over(self, bound: Bound) -> bool:
        over = self._responses.is_stale(bound)
        self.dropped += over
        return over

    def _created(self, response_id: str) -> list[BackendOutput]:
        """The engine has moved on: one in which the model chose to listen is over, said or not."""
        outputs: list[BackendOutput] = []
        for each in self._responses.open():
            if each.listened is not None and each.key is not None and each.key[1] != response_id:
                outputs += self._end_as_told(each, "completed", None)
        self._responses.of(response_id)
        return outputs

    def _spoke(self, bound: Bound) -> list[BackendOutput]:
        """The first visible thing of a response says that the model chose to speak."""
        bound.listened = None
        if bound.visible:
            return []
        bound.visible = True
        return [Decision(bound.fence, self._tick(), Action.RESPONSE), *bound.early]

    def _audio(self, chunk: AudioChunk, text: str) -> list[BackendOutput]:
        bound = self._responses.of(chunk.response_id)
        if self._is_over(bound):
            return []
        outputs = self._spoke(bound)
        bound.samples, bound.rate = bound.samples + len(chunk.pcm) // 2, chunk.rate_hz
        bound.text += text
        if text:
            outputs.append(TextDelta(bound.fence, text))
        # The engine says all marks again with every chunk; each is told once.
        marked_ms = bound.marks[-1][1] if bound.marks else -1
        marks = tuple(sorted(mark for mark in chunk.marks if mark[1] > marked_ms))
        bound.marks.extend(marks)
        outputs.append(AudioDelta(bound.fence, chunk.pcm, chunk.rate_hz, marks))
        behind, self._behind = self._behind, []
        return [*outputs, *behind]

    def _listens(self, event: Listening) -> list[BackendOutput]:
        bound = self._listening_in(event)
        if bound is not None:
            # More may follow in the same response; if it ends instead, it ended listening.
            if not self._is_over(bound) and not event.metadata.get("buffering"):
                bound.listened = event
            return []
        asked, fence = self._responses.asked, self._responses.between
        if asked is not None and not asked.sealed:
            return []  # about input that went before its turn was sealed
        if asked is not None and asked.spoken and event.reason == SILENCE_OR_NOISE:
            return []  # about input that came behind it
        if asked is not None and not event.metadata.get("buffering"):
            fence = asked.fence
            self._responses.end(asked)
        return [Decision(fence, self._tick(), Action.SILENCE, reason=_reason(event))]

    def _listening_in(self, event: Listening) -> Bound | None:
        """The response in which the model listens: the one named, or the one that is open."""
        if event.response_id is not None:
            return self._responses.find(event.response_id)
        begun = (each for each in self._responses.open() if each.key is not None)
        return next((each for each in begun if not self._responses.is_stale(each)), None)

    def _done(self, event: ResponseDone) -> list[BackendOutput]:
        bound = self._responses.of(event.response_id)
        if self._is_over(bound):
            self._responses.end(bound)
            return []
        return self._end_as_told(bound, _SAID.get(event.status, "incomplete"), event.reason)

    def _end_as_told(self, bound: Bound, status: str, reason: str | None) -> list[BackendOutput]:
        outputs: list[BackendOutput] = []
        listened = bound.listened
        limit = listened is not None and listened.reason == CONTINUATION_LIMIT
        if listened is not None and (not bound.visible or limit):
            reason_told = _reason(listened)
            outputs.append(
                Decision(bound.fence, self._tick(), Action.SILENCE, reason=reason_told, final=bound.visible)
            )
        self._responses.end(bound)
        failed = reason if status != "completed" else None
        if not bound.visible and not bound.asked:
            return outputs  # nothing of it was ever told
        return [*outputs, TurnEnd(bound.fence, status, failed)]

    def _measured(self, event: StageMetrics) -> list[BackendOutput]:
        bound = self._responses.find(event.response_id) if event.response_id is not None else None
        if bound is None or self._responses.is_stale(bound):
            return []
        figures = Metrics(bound.fence, event.stages, whole=True, request=event.request)
        if not bound.visible and self._held is None:
            bound.early.append(figures)
            return []
        if self._held is None:
            return [figures]
        self._behind.append(figures)
        return []


def _reason(event: Listening) -> str:
    if event.model_listen or event.reason in (None, MODEL_LISTEN):
        return "model"
    return event.reason or "model"
