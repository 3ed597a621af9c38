"""The responses of a session: which is active, which still drain, what was heard of each, how they end."""

from __future__ import annotations

from orchestrator.session.backend import (
    MAX_OUTPUT_TOKENS,
    Action,
    AudioDelta,
    Decision,
    Metrics,
    TurnEnd,
)
from orchestrator.session.commands import CreateResponse
from orchestrator.session.effects import BackendPlayback, BackendTell
from orchestrator.session.events import Event, OutputCleared, PlaybackPaused, ResponseListen
from orchestrator.session.facts import ResponseEnded, ResponseStarted
from orchestrator.session.fence import Fence
from orchestrator.session.history import History
from orchestrator.session.metrics import added
from orchestrator.session.playback import Playback, PlaybackBook
from orchestrator.session.response import Phase, Response, response_id_of, serial_of
from orchestrator.session.shared import Shared
from orchestrator.session.states import State, Trigger
from orchestrator.session.told import Heard

LISTEN_EVERY_S = 10.0
"""A run of silences is told once, and again after this long."""
TOLD_EVERY_MS = 1000
"""Steps in which the backend learns how far the wall clock has played a response."""


class Answers:
    """At most one response is active. Where the backend runs turns concurrently, earlier ones may drain.

    :param history: gets the items, and of each what was heard
    :param book: the playback ledgers
    """

    def __init__(self, shared: Shared, history: History, book: PlaybackBook) -> None:
        self._shared = shared
        self._history = history
        self._book = book
        self.active: Response | None = None
        self.draining: list[Response] = []
        self.count = 0
        self.stale = 0
        """Outputs dropped because their turn or epoch was over."""
        self.tick_response_id: str | None = None
        """The response that the tick in flight opened or speaks into."""
        self.has_spoken = False
        """Audio was made in this session."""
        self.ended_status: str | None = None
        """How a response ended in order since this was last reset."""
        self._endings: list[Event] = []
        self._ended_turn = -1
        self._decided = False
        self._listen_told_at: float | None = None

    @property
    def responding(self) -> bool:
        """Something is being answered, or what was sent is still being played."""
        if self.active is not None or self.draining:
            return True
        return bool(self._book.playing(self._shared.now))

    def was_ours(self, response_id: str) -> bool:
        serial = serial_of(self._shared.session_id, response_id)
        return serial is not None and serial < self.count

    # --- backend outputs ---------------------------------------------------------------------------------

    def decision(self, decision: Decision) -> None:
        if decision.action is not Action.SILENCE:
            self._decided = True
            self._listen_told_at = None
            if decision.action is Action.RESPONSE:
                response = self._response_of(decision.fence)
                self._shared.emit_all(response.speak(decision.score))
            return
        model_listens = decision.reason in (None, "model")
        reason = "model_listen" if model_listens else decision.reason or "model_listen"
        active = self.active
        if active is not None and active.phase is Phase.CREATED and decision.fence.turn >= active.fence.turn:
            # Words were asked for and the model has none: listening ends the response on the client.
            self._shared.emit(ResponseListen(decision.fence, reason, model_listens, active.response_id))
            self.finish(active, "completed", None)
        elif active is not None and decision.final:
            self._shared.emit(ResponseListen(decision.fence, reason, model_listens, active.response_id))
        elif active is None:
            self.listen(decision.fence, reason, model_listen=model_listens)

    def listen(self, fence: Fence, reason: str, *, model_listen: bool, asked: bool = False) -> None:
        """Tell of a silence, but not of every one. ``asked``: it answers something, so it is always told."""
        told, now = self._listen_told_at, self._shared.now
        if asked or told is None or now - told >= LISTEN_EVERY_S:
            self._listen_told_at = now
            self._shared.emit(ResponseListen(fence, reason, model_listen))

    def text(self, fence: Fence, text: str) -> None:
        if (response := self._spoken_into(fence)) is not None:
            self._shared.emit_all(response.add_text(text))

    def audio(self, chunk: AudioDelta) -> None:
        if (response := self._spoken_into(chunk.fence)) is not None and response.spoken:
            self.has_spoken = True
            self._shared.emit_all(response.add_audio(chunk.pcm, chunk.rate, chunk.text_marks))

    def measured(self, figures: Metrics) -> None:
        """Figures of a unit count for the response that owns it, and for no other."""
        for response in (*self.draining, self.active):
            if response is not None and response.fence.turn == figures.fence.turn:
                before, stages = response.stage_metrics, figures.stages
                response.stage_metrics = {**before, **stages} if figures.whole else added(before, stages)
                response.request_metrics = {**response.request_metrics, **figures.request}

    def turn_end(self, end: TurnEnd) -> None:
        self._ended_turn = max(self._ended_turn, end.fence.turn)
        for response in self.draining:
            if response.fence.turn == end.fence.turn:
                self.finish(response, end.status, end.reason)
                return
        self._decided = False
        active = self.active
        if active is not None and (end.fence.turn >= active.fence.turn or active.phase is Phase.STREAMING):
            self.finish(active, end.status, end.reason)

    # --- beginnings --------------------------------------------------------------------------------------

    def request(self, fence: Fence, command: CreateResponse) -> Response:
        """Announce a response that was asked for, before the model has said anything.

        One that the model began unasked, while the turn was still on its way to it, makes way; of the same
        turn it is the answer.
        """
        self._make_way(fence)
        self._shared.fence = max(self._shared.fence, fence)
        return self.active or self._start(fence, command)

    def _spoken_into(self, fence: Fence) -> Response | None:
        """The response that a delta belongs to; ``None`` for late output of a turn that has ended."""
        over = fence.turn <= self._ended_turn and not self._decided
        if over and self.active is None and all(r.fence.turn != fence.turn for r in self.draining):
            self.stale += 1
            return None
        return self._response_of(fence)

    def _response_of(self, fence: Fence) -> Response:
        """The response of that turn, created at its first visible output."""
        for response in self.draining:
            if response.fence.turn == fence.turn:
                return response
        self._make_way(fence)
        active = self.active or self._start(fence)
        self.tick_response_id = active.response_id
        return active

    def _make_way(self, fence: Fence) -> None:
        """The active response of an earlier turn is over, or goes on beside the next one."""
        active = self.active
        if active is None or fence.turn <= active.fence.turn:
            return
        if self._shared.capabilities.concurrent_turns:
            self.draining.append(active)
        else:
            self.finish(active, "completed", None)
        self.active = None

    def _start(self, fence: Fence, command: CreateResponse | None = None) -> Response:
        """:param command: what asked for it, if anything did"""
        shared = self._shared
        self.release_endings()
        if shared.state is not State.RESPONDING:
            shared.move(Trigger.VISIBLE)
        response_id = response_id_of(shared.session_id, fence.epoch, self.count)
        self.count += 1
        asked = command or CreateResponse()
        modalities = shared.offered(asked.modalities)
        ledger = self._book.open(
            response_id,
            fence,
            spoken="audio" in modalities,
            aligned=shared.capabilities.text_follows_audio,
        )
        response = Response(
            ledger,
            fence,
            modalities,
            requested=command is not None,
            in_history=asked.in_history,
            metadata=asked.metadata,
            output_format=asked.output_format or shared.config.output_format,
            max_text_bytes=shared.capabilities.max_transcript_bytes,
        )
        self.active = response
        previous = self._history.add(response.item("in_progress", ""))
        if not response.in_history:
            self._history.keep_out(response.item_id)
        shared.record(ResponseStarted(response_id, fence.epoch, fence.turn))
        shared.emit_all(response.begin(previous))
        return response

    # --- ends ----------------------------------------------------------------------------------------------

    def finish(self, response: Response, status: str, reason: str | None) -> None:
        """End a response in order."""
        self._shared.emit_all(self._end(response, status, reason))
        if self.active is None and not self.draining:
            self._shared.move(Trigger.DONE)
        fence = self._shared.fence
        self._shared.fence = Fence(fence.epoch, fence.turn + 1)
        self.ended_status = status

    def interrupt(self, status: str, reason: str) -> tuple[str, ...]:
        """End everything that is being answered or played; the ids of all responses that this silences.

        The ledgers close now; the closing events wait for ``release_endings``, so that nothing of an old
        epoch can follow them.
        """
        ending = [*self.draining, *([self.active] if self.active is not None else [])]
        silenced = [response.response_id for response in ending]
        for response in ending:
            self._endings.extend(self._end(response, status, reason))
        for ledger in self._book.playing(self._shared.now):
            silenced.append(ledger.response_id)
            self._stop(ledger)
            self._endings.append(OutputCleared(ledger.fence, ledger.response_id))
        self._decided = False
        return tuple(silenced)

    def hold(self, held: bool) -> None:
        """The client pauses what it plays, or goes on with it."""
        now = self._shared.now
        self._book.advance(now)
        self._book.paused = held
        playing = [response.response_id for response in (*self.draining, self.active) if response is not None]
        playing = playing or [ledger.response_id for ledger in self._book.playing(now)]
        newest = playing[-1] if playing else None
        self._shared.emit(PlaybackPaused(self._shared.fence, newest, held))

    def clear(self, response_id: str | None) -> Playback | None:
        """The finished response whose playback a client wants stopped, now stopped."""
        playing = [r for r in self._book.playing(self._shared.now) if response_id in (None, r.response_id)]
        if not playing:
            return None
        ledger = playing[-1]
        self._stop(ledger)
        self._shared.emit(OutputCleared(ledger.fence, ledger.response_id))
        return ledger

    def release_endings(self) -> None:
        endings, self._endings = self._endings, []
        self._shared.emit_all(endings)

    def _end(self, response: Response, status: str, reason: str | None) -> tuple[Event, ...]:
        """Close a response's ledger and enter what was heard; its closing events."""
        if response is self.active:
            self.active = None
        else:
            self.draining.remove(response)
        shared, ledger = self._shared, response.ledger
        self._book.advance(shared.now)
        cut = status == "incomplete" and reason == MAX_OUTPUT_TOKENS
        ledger.end(shared.now, response.text, status, cut=cut)
        heard = ledger.heard()
        committed = self._enter(response, heard, status)
        events = response.finish(status, reason, heard=heard, committed=committed)
        silenced = response.spoken and (status == "cancelled" or ledger.truncated)
        self._history.update(response.item(status, heard if silenced else response.text))
        kept = heard if response.in_history else ""
        shared.record(ResponseEnded(response.response_id, status, reason, response.text, kept))
        if response.in_history:
            self.tell_heard(ledger)
        else:  # nor does the model go on from it
            shared.do(BackendTell(Heard(response.response_id, "", complete=False), ledger.fence))
        return events

    def _enter(self, response: Response, heard: str, status: str) -> bool:
        """Give the item its place in history; True when what was heard of it is there."""
        if not response.in_history or status == "failed":
            return False
        if not heard and response.spoken and not self._history.reserved(response.item_id):
            self._history.unheard(response.item_id)
            return False
        self._history.reserve(response.item_id)
        self._history.hear(response.item_id, heard, complete=response.ledger.heard_whole)
        return bool(heard)

    # --- what was heard ------------------------------------------------------------------------------------

    def hear(self, ledger: Playback) -> bool:
        """The ledger of an ended response moved: fill its slot; True when history changed."""
        changed = self._history.hear(ledger.item_id, ledger.heard(), complete=ledger.heard_whole)
        if ledger.told is not None and ledger.settled:
            self.tell_heard(ledger)
        return changed

    def revoke(self, response_id: str) -> None:
        """An ending that the client never got turned into a failure: nothing of it counts as heard."""
        if (ledger := self._book.get(response_id)) is not None:
            ledger.end(self._shared.now, "", "failed")
            self._history.hear(ledger.item_id, "", complete=False)
            self.tell_heard(ledger)

    def advance(self) -> None:
        """Let the wall clock play on."""
        for ledger in self._book.advance(self._shared.now):
            if not self._history.too_late(ledger.item_id):
                self._history.reserve(ledger.item_id)
                if ledger.ended:
                    self.hear(ledger)
            if ledger.settled or ledger.committed_ms - ledger.told_ms >= TOLD_EVERY_MS:
                ledger.told_ms = ledger.committed_ms
                self._shared.do(
                    BackendPlayback(ledger.response_id, ledger.fence, ledger.played_ms, ledger.committed_ms)
                )

    def tell_heard(self, ledger: Playback) -> None:
        """Tell the backend what was heard so far; told again whenever that is settled anew."""
        fact = Heard(ledger.response_id, ledger.heard(), ledger.heard_whole, ledger.settled)
        if fact != ledger.told:
            ledger.told = fact
            self._shared.do(BackendTell(fact, ledger.fence))

    def _stop(self, ledger: Playback) -> None:
        ledger.stopped = True
        if ledger.ended:
            self.hear(ledger)
