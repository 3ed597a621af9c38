"""Scenes played through the product's own memory, with a teacher in the model's place.

What comes out is what the product would have sent: windows with the teacher's answers, requests for summaries
and roll-ups with the right notes. Nothing here knows how a prompt is laid out; ``memory`` does.
"""

from __future__ import annotations

import pydoc_data.topics
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from evals.scenes.asks import Ask, ask
from evals.scenes.spec import Scene
from evals.scenes.truth import describe, named, visible
from memory.facts import (
    FrameSeen,
    MemoryOpened,
    Prewarmed,
    QueryClearedFact,
    QuerySet,
    RollupLanded,
    SummaryFailed,
    SummaryLanded,
    TickAnswered,
    WindowSwitched,
)
from memory.fold import Memory
from memory.plan import Limits, Plan, WantPrewarm, WantRollup, WantSummary
from memory.render import RENDERER, chat_messages, rollup_messages, summary_messages
from prompts.pack import Pack

SIDE = 128
UNKNOWN = "I do not know."
NOTE = "One moment."
MEMORY_SKILLS = frozenset({"first", "before", "prior", "colour", "when", "ago", "still"})
TALKATIVE = "talkative"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a session goes.

    :param skills: what is asked, with weights; ``every_s``: how soon the next question comes
    :param gate_s: seconds until the first question
    :param late: ticks until a summary is there, at most
    :param rollup_chunks: sooner than the pack has it, or hardly a session would be long enough to teach one
    :param forgets: no summary is kept, so what happened before the window is not known
    """

    chunk_frames: int
    overlap_frames: int
    skills: tuple[tuple[str, float], ...]
    every_s: tuple[int, int]
    gate_s: int
    late: int
    persona: str = "default"
    forgets: bool = False
    clears: float = 0.1
    max_qa: int = 40
    jitter: float = 0.0
    rollup_chunks: int = 5


@dataclass(frozen=True, slots=True)
class Said:
    """One answer of the teacher. ``weight``: how much it counts; 0 for what another window has taught.

    ``skill``: what it answers; empty for a silence.
    """

    text: str
    weight: float
    skill: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """One request with its right answers.

    :param messages: as the engine gets them, the answers among them
    :param frames: seconds of the pictures, in order
    :param said: for each assistant message
    """

    kind: str
    messages: list[dict[str, Any]]
    frames: tuple[int, ...]
    said: tuple[Said, ...]


class Session:
    """One scene, one run of the memory, one picture a second."""

    def __init__(self, scene: Scene, pack: Pack, habits: Habits, rng: np.random.Generator) -> None:
        self._scene, self._pack, self._habits, self._rng = scene, pack, habits, rng
        self._memory = Memory(pack)
        limits = Limits(
            chunk_frames=habits.chunk_frames,
            overlap_frames=habits.overlap_frames,
            rollup_chunks=habits.rollup_chunks,
            long_term_max=pack.long_term_max,
            long_term_keep=pack.long_term_keep,
            max_qa=habits.max_qa,
        )
        self._apply(
            MemoryOpened(
                pack=pack.family,
                pack_digest=pack.digest,
                renderer=RENDERER,
                persona=habits.persona,
                language="en",
                limits=asdict(limits),
                jitter=habits.jitter,
            )
        )
        self._ask: Ask | None = None
        self._skills: dict[int, str] = {}
        self._taught: set[int] = set()
        self._due: list[tuple[int, SummaryLanded | SummaryFailed | RollupLanded]] = []
        self._wanted: set[object] = set()
        self._finished: list[Example] = []

    def play(self) -> Iterator[Example]:
        """All that was asked of the model, in order."""
        end = int(self._scene.length_s)
        next_ask = self._habits.gate_s
        for t in range(end):
            if t >= next_ask and self._habits.persona != TALKATIVE:
                self._question(t, end)
                next_ask = t + int(self._rng.integers(self._habits.every_s[0], self._habits.every_s[1] + 1))
            self._tick(t)
            yield from self._take()
        yield self._window()

    def _take(self) -> list[Example]:
        taken, self._finished = self._finished, []
        return taken

    def _question(self, t: int, end: int) -> None:
        names, weights = zip(*self._habits.skills, strict=True)
        if self._ask and self._rng.random() < self._habits.clears:
            self._memory.apply(QueryClearedFact(media_time_ms=t * 1000))
            self._ask = None
            return
        share = np.array(weights) / sum(weights)
        for _ in range(6):
            skill = names[int(self._rng.choice(len(names), p=share))]
            asked = self._asked(skill, t, end)
            if asked is not None:
                self._ask = asked
                self._apply(QuerySet(query_id=f"q{t}", text=asked.text, media_time_ms=t * 1000))
                return

    def _asked(self, skill: str, t: int, end: int) -> Ask | None:
        """A question of a skill: often an alert that must stay silent, often one about what is long gone."""
        rng = self._rng
        wordings = 3 if rng.random() < 0.3 else 1
        picky = rng.random() < 0.5
        asked = None
        for _ in range(6):
            asked = ask(self._scene, skill, t, end, rng, wordings)
            if asked is None or not picky:
                break
            seen = [right.evidence for right in asked.rights if right.evidence]
            if skill == "alert" and not asked.rights:
                break
            if skill != "alert" and (skill not in MEMORY_SKILLS or all(t - e[1] > 20 for e in seen)):
                break
        if asked is not None and skill == "delegate" and rng.random() < 0.7:
            return replace(asked, text=hard_question(rng))
        return asked

    def _tick(self, t: int) -> None:
        memory = self._memory
        for due, fact in [one for one in self._due if one[0] <= t]:
            self._due.remove((due, fact))
            self._apply(fact)
        self._apply(
            FrameSeen(frame_id=str(t), uuid=str(t), media_time_ms=t * 1000, width=SIDE, height=SIDE, size=0)
        )
        begun = memory.begin_tick(t)
        self._apply(begun)
        action, text, question = self._teach(t)
        tags = self._pack.tags
        if action == "delegate":
            said = f"{tags.response} {text} {tags.delegation} {question}"
        else:
            said = tags.silence if action == "silence" else f"{tags.response} {text}"
        self._apply(
            TickAnswered(
                tick=t,
                media_time_ms=t * 1000,
                action=action,
                said=said,
                said_is_generated=True,
                text=text,
                question=question,
                response_id=f"r{t}",
            )
        )
        self._carry_out(t)

    # --- the teacher -----------------------------------------------------------------------------------

    def _teach(self, t: int) -> tuple[Any, str, str | None]:
        """Action, words and question of a tick."""
        if self._habits.persona == TALKATIVE:
            words = changes(self._scene, t) if t else ""
            if words:
                self._skills[t] = "narrate"
            return ("response", words, None) if words else ("silence", "", None)
        asked = self._ask
        reply = dict(asked.replies).get(t) if asked else None
        if asked is None or reply is None:
            return "silence", "", None
        self._skills[t] = asked.skill
        if asked.skill == "delegate":
            if self._habits.persona == "silent":
                return "response", UNKNOWN, None
            return "delegate", NOTE, asked.text
        if self._forgotten(asked):
            return "response", UNKNOWN, None
        return "response", reply, None

    def _forgotten(self, asked: Ask) -> bool:
        """The answer follows from pictures that neither the window shows nor a note tells."""
        first = self._memory.parts.live_window.turns[:1]
        if (
            not self._habits.forgets
            or asked.skill not in MEMORY_SKILLS
            or not first
            or not first[0].media_time_ms
        ):
            return False
        seen = [right.evidence for right in asked.rights]
        return any(e is None or e[0] < first[0].media_time_ms / 1000 for e in seen)

    # --- what memory wants -----------------------------------------------------------------------------

    def _apply(self, fact: Any) -> None:
        self._memory.apply(fact)
        while moves := self._memory.moves():
            for move in moves:
                if isinstance(move, WindowSwitched) and move.window:
                    self._finished.append(self._window())
                self._memory.apply(move)

    def _carry_out(self, t: int) -> None:
        while wants := [w for w in self._memory.wants() if self._identity(w) not in self._wanted]:
            work = [w for w in wants if isinstance(w, WantSummary | WantRollup | WantPrewarm)]
            if not work:
                return
            for want in work:
                self._wanted.add(self._identity(want))
                self._do(want, t)

    @staticmethod
    def _identity(want: object) -> object:
        if isinstance(want, WantSummary):
            return "summary", want.chunk, want.attempt
        if isinstance(want, WantRollup):
            return "rollup", want.chunks, want.attempt
        return (
            ("prewarm", want.head, want.turns, want.open_tick)
            if isinstance(want, WantPrewarm)
            else "decision"
        )

    def _do(self, want: WantSummary | WantRollup | WantPrewarm, t: int) -> None:
        due = t + 1 + int(self._rng.integers(0, self._habits.late + 1))
        if isinstance(want, WantPrewarm):
            warmed = Prewarmed(
                head=want.head, turns=want.turns, open_tick=want.open_tick, ok=True, prompt_tokens=1
            )
            self._apply(warmed)
        elif isinstance(want, WantSummary) and self._habits.forgets:
            self._due.append(
                (t + 1, SummaryFailed(chunk=want.chunk, attempt=want.attempt, reason="empty", final=True))
            )
        elif isinstance(want, WantSummary):
            text = describe(self._scene, want.start_ms / 1000, want.end_ms / 1000)
            self._finished.append(self._notes("summary", want, text))
            landed = SummaryLanded(
                chunk=want.chunk, text=text, start_ms=want.start_ms, end_ms=want.end_ms, attempt=want.attempt
            )
            self._due.append((due, landed))
        else:
            text = describe(self._scene, want.start_ms / 1000, want.end_ms / 1000)
            self._finished.append(self._notes("rollup", want, text))
            self._due.append(
                (due, RollupLanded(chunks=want.chunks, text=text, start_ms=want.start_ms, end_ms=want.end_ms))
            )

    # --- examples --------------------------------------------------------------------------------------

    def _notes(self, kind: str, want: WantSummary | WantRollup, text: str) -> Example:
        memory = self._memory
        target, query = memory.budget.summary_target, memory.query
        if isinstance(want, WantSummary):
            messages = summary_messages(want, self._pack, "en", query=query, target=target)
            frames = tuple(frame.media_time_ms // 1000 for frame in want.frames)
        else:
            messages = rollup_messages(want, self._pack, "en", query=query, target=target)
            frames = ()
        return Example(
            kind, [*messages, {"role": "assistant", "content": text}], frames, (Said(text, 1.0, kind),)
        )

    def _window(self) -> Example:
        """The live window as it is, every turn answered."""
        window = self._memory.parts.live_window
        plan = Plan(window.index, window.head, tuple(t.turn for t in window.turns), None)
        if self._habits.forgets and self._rng.random() < 0.5:
            kept = tuple(s for s in plan.head.sections if s.name in ("qa", "query"))
            plan = replace(plan, head=replace(plan.head, sections=kept))
        said = []
        for turn in plan.turns:
            fresh = turn.tick not in self._taught
            self._taught.add(turn.tick)
            said.append(Said(turn.said or "", 1.0 if fresh else 0.0, self._skills.get(turn.tick, "")))
        frames = tuple(frame.media_time_ms // 1000 for frame in plan.frames)
        return Example("window", chat_messages(plan), frames, tuple(said))


_HARD = (
    "Look up {}.", "Search for {}.", "What is the price of {}?", "Who made {}?", "What does {} mean?",
    "Find out about {}.", "What is the weather in {}?", "Where can I buy {}?", "Write a poem about {}.",
    "What is the capital of {}?", "Calculate {}.", "Search the web for {}.", "Find out who first drew {}.",
    "Look up what {} costs in the shops.", "Search the web for the history of {}.", "Who was {}?",
)  # fmt: skip
_PROSE = re.findall(r"[A-Za-z]{2,12}|[0-9]{1,4}", " ".join(pydoc_data.topics.topics.values()))


def hard_question(rng: np.random.Generator) -> str:
    """Words at random: whoever hands it over has to copy it."""
    words = " ".join(str(_PROSE[i]) for i in rng.integers(0, len(_PROSE), int(rng.integers(1, 6))))
    return _HARD[int(rng.integers(len(_HARD)))].format(words)


def changes(scene: Scene, t: int) -> str:
    """What a lively watcher says of the frame at ``t``."""
    before, now = ([named(item) for item in visible(scene, at)] for at in (t - 1, t))
    words = [f"A {name} appears." for name in now if name not in before]
    words += [f"The {name} is gone." for name in before if name not in now]
    return " ".join(words)


def habits(rng: np.random.Generator, skills: Sequence[tuple[str, float]]) -> Habits:
    """A way for a session to go, as varied as the product's sessions are."""
    usual = rng.random() < 0.5
    chunk = 20 if usual else int(rng.choice([10, 14, 16, 20, 24, 28]))
    return Habits(
        chunk_frames=chunk,
        overlap_frames=4 if usual else int(rng.choice([0, 2, 4, 6])),
        skills=tuple(skills),
        every_s=((2, 9), (8, 14), (25, 70))[int(rng.choice(3, p=[0.6, 0.25, 0.15]))],
        gate_s=int(rng.integers(0, 6)) if rng.random() < 0.75 else int(rng.integers(0, 70)),
        late=int(rng.integers(0, 4)),
        persona=str(rng.choice(["default", "silent", "talkative"], p=[0.88, 0.06, 0.06])),
        forgets=bool(rng.random() < 0.08),
        max_qa=int(rng.choice([4, 10, 40])),
        jitter=float(rng.uniform(-0.2, 0.2)),
    )
