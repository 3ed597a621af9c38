"""A scripted session around ``Memory``: a log, an engine that counts tokens, and a slow summarizer.

Every plan that would be sent is checked: roles alternate, limits hold, and within a window the frozen
bytes only grow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace

from memory.audit import PrefixAudit
from memory.facts import (
    AnyFact,
    EngineLost,
    FrameSeen,
    HeadFrozen,
    MemoryOpened,
    PackSet,
    Prewarmed,
    QueryClearedFact,
    QuerySet,
    RollupFailed,
    RollupLanded,
    SummaryFailed,
    SummaryLanded,
    TickAnswered,
    TickFailed,
    WindowSwitched,
    fact_data,
    parse_fact,
)
from memory.fold import Memory
from memory.plan import AuditResult, Image, Limits, Plan, Usage, WantPrewarm, WantRollup, WantSummary
from memory.render import PlanBytes, chat_messages, plan_bytes
from prompts.loader import load_pack
from prompts.pack import Pack
from tests.memory.prefix_cache import PrefixCache, picture_tokens
from tests.packs import resized, reworded

FRAME_TOKENS = 256
GENERIC = load_pack("generic")
JOYVL = load_pack("joyvl")


def opened(pack: Pack = JOYVL, **limits: int) -> MemoryOpened:
    return MemoryOpened(
        pack=pack.family, pack_digest=pack.digest, renderer=1, persona="default", language="en",
        limits=asdict(Limits(**limits)),
    )  # fmt: skip


def count(plan: Plan, frame_tokens: int = FRAME_TOKENS) -> int:
    """Tokens as the scripted engine counts them: four characters each, pictures apart."""
    text = len(plan.head.system) + sum(len(s.text) + 2 for s in plan.head.sections)
    turns = (*plan.turns, plan.open_turn) if plan.open_turn else plan.turns
    for turn in turns:
        text += len(turn.said or "") + sum(len(p.text) for p in turn.user if not isinstance(p, Image)) + 40
    return text // 4 + sum(picture_tokens(frame, frame_tokens) for frame in plan.frames)


class Driver:
    """One session. ``limits`` are also the engine's: a plan beyond them fails the test."""

    def __init__(self, pack: Pack = JOYVL, *, frame_tokens: int = FRAME_TOKENS, jitter: float = 0.0,
                 **limits: int) -> None:  # fmt: skip
        self.pack = pack
        self.packs = (pack, reworded(pack), resized(pack))
        self.memory = Memory(*self.packs)
        self.log: list[tuple[str, dict]] = []
        self.plans: list[Plan] = []
        self.limits = Limits(**limits)
        self.frame_tokens = frame_tokens
        self.tick_no = 0
        self.ms = -1000
        self.frames_seen: list[int] = []
        self.switches: list[WindowSwitched] = []
        self.heads: list[HeadFrozen] = []
        self._frozen: dict[int, PlanBytes] = {}
        self.started: set[tuple] = set()
        self.cache = PrefixCache(frame_tokens)
        self.audit = PrefixAudit(16)
        self.results: list[AuditResult] = []
        self.uncached: list[int] = []
        self.apply(opened(pack, **limits).model_copy(update={"jitter": jitter}))

    def apply(self, fact: AnyFact) -> None:
        self.note(fact)
        while moves := self.memory.moves():
            for move in moves:
                self.note(move)

    def note(self, fact: AnyFact) -> None:
        """Log and apply, through the log's own form."""
        if isinstance(fact, EngineLost):
            self.cache.forget()
            self.started.clear()  # what was warm is cold, and may be wanted again
        if isinstance(fact, WindowSwitched):
            self.switches.append(fact)
        if isinstance(fact, HeadFrozen):
            self.heads.append(fact)
        data = fact_data(fact)
        self.log.append((fact.kind, data))
        again = parse_fact(fact.kind, data)
        assert again == fact
        if result := self.audit.observe(self.memory, again):
            self.results.append(result)
        self.memory.apply(again)

    def rebuilt(self) -> Memory:
        """A memory made from the log alone."""
        memory = Memory(*self.packs)
        for kind, data in self.log:
            fact = parse_fact(kind, data)
            assert fact is not None
            memory.apply(fact)
        return memory

    # --- input ------------------------------------------------------------------------------------------

    def frame(self, ms: int | None = None, *, frame_id: str | None = None, lossless: bool = False) -> str:
        self.ms = self.ms + 1000 if ms is None else ms
        frame_id = frame_id or f"f{self.ms}"
        side = min(512, math.isqrt(self.memory.pixels))
        self.apply(
            FrameSeen(
                frame_id=frame_id, uuid=f"u-{frame_id}", media_time_ms=self.ms, width=side, height=side,
                size=1000, lossless=lossless, tokens=max(1, self.frame_tokens * side**2 // 512**2),
            )
        )  # fmt: skip
        return frame_id

    def ask(self, text: str, query_id: str | None = None) -> None:
        self.apply(QuerySet(query_id=query_id or f"q-{text}", text=text, media_time_ms=max(0, self.ms)))

    def clear(self) -> None:
        self.apply(QueryClearedFact(media_time_ms=max(0, self.ms)))

    def change_pack(self, pack: Pack, **limits: int) -> None:
        """The session is taken up by a process that has an edited pack."""
        settings = self.memory.settings
        self.apply(
            PackSet(
                pack=pack.family, pack_digest=pack.digest, persona=settings.persona,
                language=settings.language, limits=asdict(replace(self.limits, **limits)),
            )
        )  # fmt: skip

    # --- ticks ------------------------------------------------------------------------------------------

    def begin(self, instructions: str | None = None) -> Plan:
        self.apply(self.memory.begin_tick(self.tick_no, instructions))
        self.tick_no += 1
        plan = self.memory.plan()
        self.check(plan)
        self.plans.append(plan)
        return plan

    def answer(self, said: str | None = None, *, text: str = "", gated: bool = False,
               response_id: str | None = None, question: str | None = None) -> None:  # fmt: skip
        plan = self.memory.plan()
        tags = self.pack.tags
        spoken = f"{tags.response} {text}" if text else tags.silence
        said = spoken if said is None else said
        usage = None
        if not gated:
            prompt, cached = self.cache.ask(plan, said)
            usage = asdict(Usage(prompt, len(said) // 4 + 1, cached))
            self.uncached.append(prompt - cached)
        tick = self.memory.in_flight
        assert tick is not None
        self.apply(
            TickAnswered(
                tick=tick, media_time_ms=self.memory.now_ms, said=said, said_is_generated=not gated,
                action="delegate" if question else "response" if text else "silence", text=text, usage=usage,
                reason="gated" if gated else None, response_id=response_id, question=question,
            )
        )  # fmt: skip

    def fail(self, code: str = "engine_unreachable") -> None:
        tick = self.memory.in_flight
        assert tick is not None
        self.apply(TickFailed(tick=tick, media_time_ms=self.memory.now_ms, code=code))

    def tick(self, text: str = "", *, frame: bool = True, gated: bool = False,
             response_id: str | None = None) -> Plan:  # fmt: skip
        if frame:
            self.frame()
        plan = self.begin()
        self.answer(text=text, gated=gated, response_id=response_id)
        return plan

    # --- background work ----------------------------------------------------------------------------------

    def wants(self, kind: type) -> list:
        return [want for want in self.memory.wants() if isinstance(want, kind)]

    def land(self, want: WantSummary | None = None, text: str | None = None) -> None:
        want = want or self.wants(WantSummary)[0]
        text = f"summary of chunk {want.chunk}" if text is None else text
        self.apply(
            SummaryLanded(
                chunk=want.chunk, text=text, start_ms=want.start_ms, end_ms=want.end_ms, attempt=want.attempt
            )
        )

    def no_summary(self, want: WantSummary | None = None, final: bool = False) -> None:
        want = want or self.wants(WantSummary)[0]
        self.apply(SummaryFailed(chunk=want.chunk, attempt=want.attempt, reason="timeout", final=final))

    def rollup(self, want: WantRollup | None = None, text: str = "block") -> None:
        want = want or self.wants(WantRollup)[0]
        self.apply(RollupLanded(chunks=want.chunks, text=text, start_ms=want.start_ms, end_ms=want.end_ms))

    def no_rollup(self, want: WantRollup | None = None) -> None:
        want = want or self.wants(WantRollup)[0]
        self.apply(RollupFailed(chunks=want.chunks, attempt=want.attempt, reason="timeout"))

    def prewarm(self, ok: bool = True, steps: int = 1000) -> list[WantPrewarm]:
        """Carry out prewarm wants until there are none (or ``steps`` of them)."""
        done = []
        while steps and (wants := self.wants(WantPrewarm)):
            key = ("warm", wants[0].head, wants[0].turns)
            assert key not in self.started, "one identity was wanted twice"
            self.started.add(key)
            self.check(wants[0].plan, live=False)
            tokens = self.cache.ask(wants[0].plan)[0] if ok else None
            want = wants[0]
            self.apply(
                Prewarmed(
                    head=want.head, turns=want.turns, open_tick=want.open_tick, ok=ok, prompt_tokens=tokens
                )
            )
            done.append(wants[0])
            steps -= 1
        return done

    def run(
        self, ticks: int, *, summary_after: int = 3, fails: Callable[[int], bool] = lambda n: False
    ) -> None:
        """``ticks`` silent ticks with a summarizer that takes ``summary_after`` ticks a request."""
        for _ in range(ticks):
            self.tick()
            self.background(summary_after, fails)

    _busy: tuple[int, WantSummary] | None = None
    _requests: int = 0

    def background(self, summary_after: int, fails: Callable[[int], bool] = lambda n: False) -> None:
        """One summarizer, one prewarm lane, one roll-up, driven once a tick."""
        if self._busy is None and (wants := self.wants(WantSummary)):
            self._busy = self.tick_no + summary_after, wants[0]
        if self._busy and self._busy[0] <= self.tick_no:
            want, self._busy = self._busy[1], None
            self._requests += 1
            if fails(self._requests):
                self.no_summary(want)
            else:
                self.land(want)
        if self.wants(WantRollup):
            self.rollup()
        self.prewarm(steps=2)

    # --- checks -------------------------------------------------------------------------------------------

    def check(self, plan: Plan, live: bool = True) -> None:
        messages = chat_messages(plan)
        roles = [m["role"] for m in messages]
        assert roles[0] == "system"
        assert roles[1:] == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2 == 0) or (
            roles[1:] == (["user", "assistant"] * len(roles))[: len(roles) - 1]
        )
        uuids = [p["uuid"] for m in messages if isinstance(m["content"], list)
                 for p in m["content"] if p["type"] == "image_url"]  # fmt: skip
        assert len(uuids) == len(set(uuids)), "a frame is shown twice"
        assert len(uuids) <= self.limits.max_images
        assert count(plan, self.frame_tokens) + self.limits.reply_tokens <= self.limits.context_tokens
        if not live:
            return
        now = plan_bytes(plan)
        before = self._frozen.get(plan.window)
        if before:
            assert now.data[: before.frozen] == before.data[: before.frozen]
            assert now.frozen >= before.frozen
        self._frozen[plan.window] = now


def head_text(plan: Plan) -> str:
    return "\n\n".join(s.text for s in plan.head.sections)


def section(plan: Plan, name: str) -> str:
    return next((s.text for s in plan.head.sections if s.name == name), "")


def frame_times(plan: Plan) -> list[int]:
    return [f.media_time_ms for f in plan.frames]


_RANGE = re.compile(r"(?:<|for |（)(\d+\.\d)-(\d+\.\d) (?:seconds|秒)")


def told_spans(plan: Plan) -> list[tuple[int, int]]:
    """Media time that the head tells by text or by a gap marker, in ms."""
    text = section(plan, "long_term") + "\n" + section(plan, "summaries")
    return [(round(float(a) * 1000), round(float(b) * 1000)) for a, b in _RANGE.findall(text)]


def blind(plan: Plan, seen: list[int], since: int = 0) -> list[int]:
    """Times of ``seen`` frames from ``since`` on that the plan covers in neither frames nor text."""
    shown = set(frame_times(plan))
    spans = told_spans(plan)
    return [ms for ms in seen if ms >= since and ms not in shown and not any(a <= ms < b for a, b in spans)]
