"""``Memory``: what a session's log of facts means for the next prompt. A pure, deterministic fold.

::

    facts --apply--> Memory --moves--> facts due by its own rules (log and apply each, then ask again)
                            --wants--> work for the backend (each identity once; ends with a fact)
                            --begin_tick, plan--> the next decision

The parts: ``open_turn`` and ``compose`` (what waits), ``window`` (what is shown), ``chunks`` and ``history``
(what becomes text), ``queries`` and ``qa``, ``drafting``, ``head`` and ``handover`` (the next window),
``budget`` (how much of each).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memory import drafting
from memory import facts as f
from memory.answers import answered
from memory.compose import compose, flight_tokens
from memory.handover import EARLY_TICKS, STEP_TOKENS, Handover, prewarm
from memory.head import memory_text, pieces
from memory.history import Passage
from memory.open_turn import Delivery, Waiting
from memory.parts import Parts, Settings, limits_of
from memory.plan import Head, Limits, Plan, Section, Turn, Want, WantDecision, WantPrewarm
from memory.qa import QaLine
from memory.queries import Query
from memory.rebuild import stripped
from memory.render import plan_bytes
from memory.tokens import clip
from memory.views import Views
from memory.window import Window, frame_count
from prompts.pack import Pack

WARM_EVERY_FRAMES = 10  # while no engine is asked, the window is kept warm once per so many frames
EARLY_HEARD = 16  # reports on responses whose tick is not answered yet


class Memory(Views):
    """One session's memory. Deterministic in (packs, facts): replaying a log gives the same plans.

    Not thread-safe; no method blocks. ``apply`` raises ``KeyError`` for an unknown pack, persona or language
    and ``memory.budget.LimitsTooSmall`` for limits that hold no turn; the memory is then unchanged.

    :param packs: those that the log names, by their digests
    """

    def __init__(self, *packs: Pack) -> None:
        super().__init__()
        self._packs = {pack.digest: pack for pack in packs}
        self._early_heard: dict[str, f.HeardFact] = {}
        self._wants: tuple[Want, ...] | None = None  # as they are since the last fact, once asked for
        self._folds: dict[str, Callable[[Any], None]] = {
            "memory_opened": self._opened,
            "frame_seen": self._frame_seen,
            "frame_dropped": self._frame_dropped,
            "query_set": self._query_set,
            "query_cleared": self._query_cleared,
            "persona_set": self._persona_set,
            "pixels_set": self._pixels_set,
            "pack_set": self._pack_set,
            "move_wanted": self._move_wanted,
            "tick_begun": self._tick_begun,
            "tick_answered": self._tick_answered,
            "tick_failed": self._tick_failed,
            "summary_landed": self._summary_landed,
            "summary_failed": self._summary_failed,
            "rollup_landed": self._rollup_landed,
            "rollup_failed": self._rollup_failed,
            "head_frozen": self._head_frozen,
            "prewarmed": self._prewarmed,
            "window_switched": self._window_switched,
            "delegation_done": self._delegation_done,
            "heard": self._heard,
            "engine_lost": self._engine_lost,
            "limits_learned": self._limits_learned,
            "item_deleted": self._item_deleted,
        }

    # --- the four questions ---------------------------------------------------------------------------

    def apply(self, fact: f.AnyFact) -> None:
        """Fold one fact. Kinds that mean nothing to the prompt are ignored."""
        fold = self._folds.get(fact.kind)
        if fold is not None:
            self._forget_derived()
            fold(fact)
            self._forget_derived()

    def _forget_derived(self) -> None:
        self._wants = None
        if self._parts is not None:
            self._parts.composed = None

    def moves(self) -> tuple[f.AnyFact, ...]:
        """Facts due now by the fold's own rules. Log and apply each, then ask again until there are none."""
        parts = self.parts
        late = [(ref, "late") for ref in parts.open.late]
        thinned = [(ref, "thinned") for ref in parts.open.surplus(parts.budget.frames_per_tick)]
        if late or thinned:
            return tuple(
                f.FrameDropped(frame_id=ref.frame_id, media_time_ms=ref.media_time_ms, reason=reason)
                for ref, reason in late + thinned
            )
        reason = drafting.head_due(parts)
        if reason:
            built = drafting.draft(parts, reason).draft
            return (
                f.HeadFrozen(
                    head=built.head.version,
                    system=built.head.system,
                    memory=tuple((s.name, s.text) for s in built.head.sections),
                    first_frame_ms=built.first_frame_ms,
                ),
            )
        reason = drafting.switch_due(parts)
        if reason and parts.handover:
            carried = len(parts.window.since(parts.handover.draft.start_seq)) if parts.window else 0
            window = parts.window.index + 1 if parts.window else 0
            head = parts.handover.draft.head.version
            return (f.WindowSwitched(window=window, head=head, carried=carried, reason=reason),)
        return ()

    def wants(self) -> tuple[Want, ...]:
        """Work outstanding now. Identities: summary (chunk, attempt), roll-up (chunks, attempt), prewarm
        (head, turns); a decision has none: one is in flight at most."""
        if self._wants is None:
            self._wants = self._wanted()
        return self._wants

    def _wanted(self) -> tuple[Want, ...]:
        parts, wanted = self.parts, list[Want]()
        if parts.open.flight is None:
            waiting = drafting.waiting(parts)
            if waiting.frames or waiting.notes:
                wanted.append(WantDecision(urgent=bool(waiting.notes)))
        wanted += parts.chunks.wants(parts.budget.key_frames)
        wanted += parts.history.wants(
            parts.limits.rollup_chunks, parts.chunks.pending_before, parts.chunks.lost, parts.lines
        )
        warm = self._warm()
        return (*wanted, warm) if warm else tuple(wanted)

    def begin_tick(self, tick: int, instructions: str | None = None) -> f.TickBegun:
        """What rides the next decision; the caller logs and applies it. ``instructions``: for this
        response alone."""
        self.parts.live_window  # noqa: B018  raises before the first head is live
        flight = drafting.waiting(self.parts)  # instructions add words, no frames
        return f.TickBegun(
            tick=tick,
            media_time_ms=flight.media_time_ms,
            frame_ids=tuple(w.ref.frame_id for w in flight.frames),
            instructions=instructions,
        )

    def plan(self, *, continue_with: str | None = None) -> Plan:
        """The live plan with the open turn in flight, or with the one that would ride now.

        ``continue_with``: assistant text that the reply must continue (``response.create``).
        """
        flight = self.parts.open.flight or drafting.waiting(self.parts)
        return self.parts.live_window.plan(Turn(flight.tick, flight.parts, None), continue_with)

    def fingerprint(self) -> str:
        """Digest over the live plan, the work outstanding and the texts kept."""
        parts = self.parts
        digest = hashlib.sha256(plan_bytes(self.plan()).data)
        digest.update(repr((self.wants(), self.moves(), self.qa, self.summaries, self.long_term)).encode())
        digest.update(repr((parts.chunks.open, parts.chunks.closed, parts.chunks.lost)).encode())
        digest.update(repr((parts.budget, parts.open.frames, parts.next_seq, self.dropped)).encode())
        return digest.hexdigest()

    def _warm(self) -> WantPrewarm | None:
        parts = self.parts
        if parts.window is None:
            return None
        if parts.handover is not None:
            turns = parts.window.since(parts.handover.draft.start_seq)
            if parts.handover.ready(turns):
                return None
            flight = parts.open.flight
            riding = Turn(flight.tick, flight.parts, None) if flight else None
            return parts.handover.want(parts.window.index + 1, turns, riding)
        cold = parts.window.since(parts.warm_seq)
        if frame_count(cold) < WARM_EVERY_FRAMES:
            return None
        return prewarm(
            parts.window.index, parts.head, parts.window.turns, len(parts.window.turns) - len(cold)
        )

    # --- the folds ----------------------------------------------------------------------------------------

    def _opened(self, fact: f.MemoryOpened) -> None:
        self._parts = Parts(self._packs[fact.pack_digest], fact)

    def _see(self, ms: int) -> Parts:
        parts = self.parts
        parts.now_ms = max(parts.now_ms, ms)
        return parts

    def _frame_seen(self, fact: f.FrameSeen) -> None:
        parts = self._see(fact.media_time_ms)
        known = fact.tokens if fact.tokens is not None else 0
        tokens = known or parts.meter.pixels(fact.width * fact.height)
        parts.open.see(fact, tokens)

    def _frame_dropped(self, fact: f.FrameDropped) -> None:
        self.parts.open.drop(fact.frame_id, fact.reason)

    def _query_set(self, fact: f.QuerySet) -> None:
        parts = self._see(fact.media_time_ms)
        text = clip(fact.text, parts.budget.query_tokens)
        if not text or parts.queries.get(fact.query_id):
            return
        query = Query(fact.query_id, parts.qa.next_index(), text, fact.media_time_ms)
        for replaced in parts.queries.set(query):
            self._record(replaced)

    def _query_cleared(self, fact: f.QueryClearedFact) -> None:
        parts = self._see(fact.media_time_ms)
        riding = parts.open.flight.standing if parts.open.flight else ()
        for ended in parts.queries.clear():
            if ended.shown_seq is not None or ended.query_id in riding:
                self._record(ended)

    def _record(self, query: Query) -> None:
        """A question that stands no more is remembered, once."""
        if not query.recorded:
            seq = self.parts.next_seq if query.shown_seq is None else query.shown_seq
            self.parts.qa.add(
                QaLine("query", seq, query.media_time_ms, query.text, query.index, query.query_id)
            )
            query.recorded = True

    def _persona_set(self, fact: f.PersonaSet) -> None:
        old = self.parts.settings
        language = fact.language or old.language
        new = replace(old, persona=fact.persona, language=language, instructions=fact.instructions)
        self._configure(new)

    def _pixels_set(self, fact: f.PixelsSet) -> None:
        self._configure(replace(self.parts.settings, max_pixels=fact.max_pixels))

    def _pack_set(self, fact: f.PackSet) -> None:
        pack = self._packs[fact.pack_digest]
        new = replace(self.parts.settings, pack=pack, persona=fact.persona, language=fact.language)
        self._configure(new, limits_of(fact.limits))

    def _configure(self, settings: Settings, limits: Limits | None = None) -> None:
        if self.parts.configure(settings, limits):
            self._hand_over_early()

    def _move_wanted(self, fact: f.MoveWanted) -> None:
        if self.parts.handover is None:
            self.parts.changes += 1
            self._hand_over_early()

    def _hand_over_early(self) -> None:
        parts = self.parts
        parts.planned_tick = parts.last_tick + (EARLY_TICKS if parts.next_seq else 1)

    def _tick_begun(self, fact: f.TickBegun) -> None:
        parts = self.parts
        parts.open.fail()
        known = {w.ref.frame_id: w for w in parts.open.frames}
        riding: list[Waiting] = [known[i] for i in fact.frame_ids if i in known]
        parts.open.begin(compose(parts, fact.tick, fact.instructions, riding))
        parts.last_tick = fact.tick

    def _tick_answered(self, fact: f.TickAnswered) -> None:
        flight = self.parts.open.flight
        if flight is None or flight.tick != fact.tick:
            return
        parts = self._see(fact.media_time_ms)
        answered(parts, fact)
        if parts.handover:
            parts.handover.answered()
        early = self._early_heard.pop(fact.response_id or "", None)
        if early:
            self._heard(early)

    def _tick_failed(self, fact: f.TickFailed) -> None:
        """Frames wait again. A prompt that was too long teaches that estimates or the limit were wrong."""
        parts = self.parts
        flight = parts.open.flight
        if flight is None or flight.tick != fact.tick:
            return
        if fact.code == "context_overflow":
            tokens = parts.live_window.tokens + flight_tokens(parts, flight) + parts.limits.reply_tokens
            parts.shrink(context_tokens=tokens * 9 // 10)
        parts.open.fail()

    def _summary_landed(self, fact: f.SummaryLanded) -> None:
        parts = self.parts
        text = clip(fact.text, parts.budget.summary_tokens, parts.meter.text_scale)
        if not text:
            parts.chunks.failed(fact.chunk, fact.attempt, final=False)
            return
        chunk = parts.chunks.landed(fact.chunk)
        if chunk is not None:
            passage = Passage(chunk.index, chunk.start_ms, chunk.end_ms, chunk.start_seq, text)
            parts.history.summary(passage)
            parts.trim_history()

    def _summary_failed(self, fact: f.SummaryFailed) -> None:
        self.parts.chunks.failed(fact.chunk, fact.attempt, fact.final)

    def _rollup_landed(self, fact: f.RollupLanded) -> None:
        parts = self.parts
        text = clip(fact.text, parts.budget.summary_tokens, parts.meter.text_scale)
        if not text:
            parts.history.rollup_failed(fact.chunks, parts.history.attempt)
        elif block := parts.history.rollup(fact.chunks, text):
            parts.chunks.told(block.start_ms, block.end_ms)
            parts.trim_history()

    def _rollup_failed(self, fact: f.RollupFailed) -> None:
        self.parts.history.rollup_failed(fact.chunks, fact.attempt)

    def _head_frozen(self, fact: f.HeadFrozen) -> None:
        """The draft that the state gives, with the head's bytes as the log has them."""
        parts = self.parts
        drafted = drafting.draft(parts, drafting.head_due(parts) or drafting.CHUNK)
        head = Head(fact.head, fact.system, tuple(Section(name, text) for name, text in fact.memory))
        live = parts.window.head if parts.window else None
        shared = memory_text(live) if live and live.system == head.system else ""
        parts.qa.freeze(drafted.qa)
        parts.handover = Handover(
            replace(drafted.draft, head=head), pieces(head, shared, parts.meter, STEP_TOKENS)
        )
        parts.heads = max(parts.heads, fact.head) + 1

    def _prewarmed(self, fact: f.Prewarmed) -> None:
        parts = self.parts
        window = parts.live_window
        if parts.handover and parts.handover.draft.head.version == fact.head:
            turns = len(window.since(parts.handover.draft.start_seq))
            parts.handover.prewarmed(fact.turns, fact.ok, turns, fact.open_tick)
        elif window.head.version == fact.head and 0 < fact.turns <= len(window.turns):
            parts.warm_seq = max(parts.warm_seq, window.turns[fact.turns - 1].seq + 1)

    def _window_switched(self, fact: f.WindowSwitched) -> None:
        parts, handover = self.parts, self.parts.handover
        if handover is None or handover.draft.head.version != fact.head:
            return
        draft = handover.draft
        old = parts.window.turns if parts.window else []
        carried = old[len(old) - fact.carried :]
        warm = carried[handover.warm_turns :]
        parts.warm_seq = warm[0].seq if warm else parts.next_seq
        start_seq = carried[0].seq if carried else parts.next_seq
        start_ms = parts.shown_end_ms() if draft.first_frame_ms is None else draft.first_frame_ms
        if parts.chunks.open.start_seq < start_seq:
            parts.chunks.close(start_seq, start_ms, told=parts.limits.keep == "all")
        if parts.deleted.rebuild:
            carried = stripped(parts, carried)
        parts.window = Window(fact.window, draft.head, draft.head_tokens, carried)
        parts.qa.leave(start_seq)
        parts.live, parts.handover = draft, None
        if draft.changes == parts.changes:
            parts.adopt()
            parts.planned_tick = None

    def _delegation_done(self, fact: f.DelegationDone) -> None:
        parts = self._see(fact.media_time_ms)
        question = clip(fact.question, parts.budget.delegation_question_tokens)
        text = clip(fact.text, parts.budget.delegation_answer_tokens)
        parts.open.deliver(Delivery(question, text, fact.ok, fact.media_time_ms))

    def _heard(self, fact: f.HeardFact) -> None:
        parts = self._see(fact.media_time_ms)
        if fact.complete:
            return
        text = clip(fact.text, max(24, parts.budget.query_tokens // 4))
        if parts.qa.heard(fact.response_id, text):
            parts.open.interrupt(fact.response_id, text)
        else:
            self._early_heard[fact.response_id] = fact
            while len(self._early_heard) > EARLY_HEARD:
                self._early_heard.pop(next(iter(self._early_heard)))

    def _engine_lost(self, fact: f.EngineLost) -> None:
        parts = self.parts
        parts.warm_seq = parts.live_window.first_seq(parts.next_seq) if parts.window else 0
        if parts.handover:
            parts.handover.cold()

    def _limits_learned(self, fact: f.LimitsLearned) -> None:
        self.parts.shrink(max_images=fact.max_images)

    def _item_deleted(self, fact: f.ItemDeleted) -> None:
        """What the window shows, or a tick in flight, can only go with a rebuild; the rest just goes."""
        parts = self.parts
        if fact.frame_id is not None:
            turns = parts.window.turns if parts.window else []
            shown = any(w.ref.frame_id == fact.frame_id for turn in turns for w in turn.frames)
            if shown or parts.open.rides(fact.frame_id):
                parts.deleted.frames.add(fact.frame_id)
                parts.deleted.rebuild = True
            parts.open.forget(fact.frame_id)
            parts.chunks.delete_frame(fact.frame_id)
        if fact.query_id is not None:
            query = parts.queries.get(fact.query_id)
            riding = parts.open.flight is not None and fact.query_id in parts.open.flight.standing
            if riding or query is None or query.shown_seq is not None:
                parts.deleted.queries.add(fact.query_id)
                parts.deleted.rebuild = True
            parts.queries.remove(fact.query_id)
            parts.qa.remove_query(fact.query_id)
