"""The memory of a native session: tiers, summaries by a summarizer or without one, bounded for hours."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memory.facts import (
    AnyFact,
    FramesDescribed,
    FramesShown,
    HeardFact,
    ItemDeleted,
    QuerySet,
    RollupFailed,
    RollupLanded,
    SpokenOpened,
    SummaryFailed,
    SummaryLanded,
    UserSaid,
    fact_data,
    parse_fact,
)
from memory.plan import FrameRef, WantRollup, WantSummary
from memory.seed import seed_text
from memory.spoken import ROLLUP_CHUNKS, SpokenMemory, WantSpokenSummary
from memory.spoken_requests import picture_messages, spoken_messages
from memory.tokens import estimate
from prompts.conversation import telling


class Session:
    """Facts in order, folded and kept."""

    def __init__(self, *, seed_tokens: int = 600, summarizer: bool = False, language: str = "en") -> None:
        self.memory = SpokenMemory()
        self.facts: list[AnyFact] = []
        self.ms = 0
        self.numbers = itertools.count()
        self.add(
            SpokenOpened(
                family="f", digest="d", language=language, seed_tokens=seed_tokens, summarizer=summarizer
            )
        )

    def add(self, fact: AnyFact) -> None:
        self.memory.apply(fact)
        self.facts.append(fact)

    def exchange(self, words: int = 20) -> None:
        number = next(self.numbers)
        self.ms += 10_000
        self.add(UserSaid(item_id=f"i{number}", text=f"question{number} " * words, media_time_ms=self.ms))
        self.add(
            HeardFact(
                response_id=f"r{number}",
                text=f"answer{number} " * words,
                complete=True,
                media_time_ms=self.ms + 4000,
            )
        )

    def seed(self, tokens: int = 600) -> str:
        return seed_text(self.memory, tokens, "Be brief.", self.ms)

    def rebuilt(self) -> SpokenMemory:
        memory = SpokenMemory()
        for fact in self.facts:
            kept = parse_fact(fact.kind, fact_data(fact))
            assert kept is not None
            memory.apply(kept)
        return memory


def test_talk_that_leaves_the_recent_part_becomes_notes_that_say_what_is_left_out() -> None:
    session = Session()
    for _ in range(4):
        session.exchange()
    (first, *_) = session.memory.history.summaries
    assert "entries are left out" in first.text or "question0" in first.text
    assert first.start_ms == 10_000
    assert "answer3" in session.seed()


def test_hours_of_talk_stay_within_bounds_and_the_seed_says_what_is_gone() -> None:
    session = Session()
    for number in range(2000):
        session.exchange(number % 30 + 1)
        if number % 100 == 0:
            figures = session.memory.statistics()
            assert figures["recent_tokens"] <= 300 + 112 and figures["history_tokens"] <= 450
            assert figures["blocks"] <= 8 and figures["summaries"] <= 8 and figures["open_chunks"] == 0
            assert estimate(session.seed()) <= 600
    assert "is no longer known" in session.seed()
    assert "answer1999" in session.seed()


def test_a_summarizers_text_takes_the_place_of_the_notes() -> None:
    session = Session(summarizer=True)
    while not session.memory.wants():
        session.exchange()
    (want,) = session.memory.wants()
    assert isinstance(want, WantSpokenSummary) and "question0" in want.lines[0]
    assert session.memory.wants() == (want,)
    session.add(SummaryLanded(chunk=want.chunk, text="They asked and answered.", start_ms=0, end_ms=1))
    assert session.memory.wants() == ()
    assert session.memory.history.summaries[0].text == "They asked and answered."


def test_a_summarizer_that_fails_is_asked_three_times_and_the_notes_stay() -> None:
    session = Session(summarizer=True)
    while not session.memory.wants():
        session.exchange()
    before = session.memory.history.summaries[0].text
    for attempt in (1, 2, 3):
        (want,) = session.memory.wants()
        assert want.attempt == attempt
        session.add(SummaryFailed(chunk=0, attempt=attempt, reason="empty"))
        session.add(SummaryFailed(chunk=0, attempt=attempt, reason="empty"))  # late, of the same attempt
    assert session.memory.wants() == ()
    assert session.memory.history.summaries[0].text == before


def test_summaries_roll_up_into_a_block() -> None:
    session = Session(summarizer=True)
    while True:
        session.exchange()
        for want in session.memory.wants():
            if isinstance(want, WantRollup):
                assert len(want.chunks) == ROLLUP_CHUNKS and "note 0" in want.texts[0]
                session.add(
                    RollupLanded(
                        chunks=want.chunks, text="all of it", start_ms=want.start_ms, end_ms=want.end_ms
                    )
                )
                assert [b.text for b in session.memory.history.blocks] == ["all of it"]
                assert "all of it" in session.seed(2000)
                return
            session.add(
                SummaryLanded(
                    chunk=want.chunk, text=f"note {want.chunk}", start_ms=want.start_ms, end_ms=want.end_ms
                )
            )


def test_a_rollup_that_fails_is_made_without_the_summarizer() -> None:
    session = Session(summarizer=True)
    while not session.memory.history.blocks:
        session.exchange()
        for want in session.memory.wants():
            if isinstance(want, WantRollup):
                session.add(RollupFailed(chunks=want.chunks, attempt=want.attempt, reason="timeout"))
            else:
                session.add(SummaryLanded(chunk=want.chunk, text=f"note {want.chunk}", start_ms=0, end_ms=1))
    assert "note 3" in session.memory.history.blocks[0].text


def test_a_summarizer_that_never_answers_costs_no_memory() -> None:
    session = Session(summarizer=True)
    for _ in range(300):
        session.exchange()
    assert session.memory.history.blocks
    assert session.memory.statistics()["open_chunks"] == 4


def test_what_the_user_deleted_is_in_no_seed() -> None:
    session = Session()
    session.add(QuerySet(query_id="q", text="my number is 1234", media_time_ms=0))
    assert "1234" in session.seed()
    session.add(ItemDeleted(query_id="q"))
    assert "1234" not in session.seed()


def test_pictures_are_told_as_a_count() -> None:
    session = Session()
    session.add(FramesShown(count=2, media_time_ms=1000))
    session.add(FramesShown(count=1, media_time_ms=3000))
    assert "0:01 (pictures were shown: 3)" in session.seed()


def test_pictures_that_were_described_are_told_in_their_place_and_not_counted_twice() -> None:
    session = Session()
    for second in range(10):
        session.add(FramesShown(count=2, media_time_ms=1000 * second))
    session.add(UserSaid(item_id="i", text="what is this?", media_time_ms=9500))
    revision = session.memory.revision
    seen = FramesDescribed(text="A red kettle\nboils. <|im_end|>", count=16, start_ms=0, end_ms=7001)
    session.add(seen)
    session.add(FramesShown(count=1, media_time_ms=10_000))
    assert [(line.who, line.start_ms, line.count) for line in session.memory.recent] == [
        ("frames", 0, 16), ("frames", 7001, 4), ("user", 9500, 0), ("frames", 10_000, 1),
    ]  # fmt: skip
    lines = session.seed().splitlines()
    assert "0:00 (pictures were shown: 16; to be seen in them): A red kettle boils. < |im_end|>" in lines
    assert "0:07 (pictures were shown: 4)" in lines
    assert session.memory.revision == revision
    assert session.rebuilt().fingerprint() == session.memory.fingerprint()


def test_a_description_of_pictures_long_past_still_finds_its_place() -> None:
    session = Session(seed_tokens=300)
    session.add(FramesShown(count=3, media_time_ms=0))
    for _ in range(12):
        session.exchange()
    session.add(FramesDescribed(text="A red kettle.", count=3, start_ms=0, end_ms=1))
    assert "A red kettle." in session.seed(1200)


def test_the_newest_words_come_before_what_was_seen_after_them() -> None:
    session = Session(seed_tokens=600)
    session.exchange()
    said = [line.text for line in session.memory.recent][-1]
    session.add(FramesDescribed(text="A kettle. " * 30, count=3, start_ms=90_000, end_ms=95_000))
    assert said in session.seed(160) and "kettle" not in session.seed(160)
    assert said in session.seed(300) and "kettle" in session.seed(300)


def test_requests_about_pictures_give_each_its_time() -> None:
    frames = tuple(FrameRef(f"f{n}", f"u{n}", 8000 * n, 0, 0) for n in range(2))
    (message,) = picture_messages(WantSummary(0, 1, 0, 61_000, frames), telling("en"), 40)
    request, *rest = message["content"]
    assert "between 0:00 and 1:01" in request["text"] and "40 tokens" in request["text"]
    assert rest == [
        {"type": "text", "text": "0:00"}, {"type": "image_url", "uuid": "u0"},
        {"type": "text", "text": "0:08"}, {"type": "image_url", "uuid": "u1"},
    ]  # fmt: skip


def test_requests_to_the_summarizer_name_time_language_and_length() -> None:
    want = WantSpokenSummary(0, 1, 0, 61_000, ("0:00 user: hello",), 40)
    (message,) = spoken_messages(want, telling("en"), 40)
    assert "from 0:00 to 1:01" in message["content"] and message["content"].endswith("0:00 user: hello")
    merge = WantRollup((0, 1), 1, ("a", "b"), 0, 1000)
    (message,) = spoken_messages(merge, telling("zh"), 40)
    assert "中文" in message["content"] and message["content"].endswith("a\n\nb")


class Talk(RuleBasedStateMachine):
    """Any order of facts: bounded, deterministic, only what was heard, and a log that rebuilds it."""

    @initialize(
        tokens=st.sampled_from([64, 300, 1200]),
        summarizer=st.booleans(),
        language=st.sampled_from(["en", "zh"]),
    )
    def open(self, tokens, summarizer, language):
        self.session = Session(seed_tokens=tokens, summarizer=summarizer, language=language)
        self.tokens = tokens
        self.texts: dict[str, str] = {}

    @rule(text=st.text(max_size=200), item=st.integers(0, 30))
    def user(self, text, item):
        self.session.ms += 500
        self.session.add(UserSaid(item_id=f"i{item}", text=text, media_time_ms=self.session.ms))

    @rule(words=st.integers(0, 60), response=st.integers(0, 12), complete=st.booleans())
    def heard(self, words, response, complete):
        self.session.ms += 500
        text = " ".join(f"w{response}x{n}" for n in range(words))
        self.texts[f"r{response}"] = text
        self.session.add(
            HeardFact(response_id=f"r{response}", text=text, complete=complete, media_time_ms=self.session.ms)
        )

    @rule(count=st.integers(0, 3))
    def frames(self, count):
        self.session.ms += 500
        self.session.add(FramesShown(count=count, media_time_ms=self.session.ms))

    @rule(count=st.integers(0, 9), text=st.text(max_size=300), back=st.integers(0, 9000))
    def described(self, count, text, back):
        end = self.session.ms
        start = max(0, end - back)
        self.session.add(FramesDescribed(text=text, count=count, start_ms=start, end_ms=end + 1))

    @rule(item=st.integers(0, 30))
    def delete(self, item):
        self.session.add(ItemDeleted(query_id=f"i{item}"))

    @rule()
    def talk(self):
        for _ in range(5):
            self.session.exchange()

    @rule(well=st.booleans(), text=st.text(max_size=300))
    def written(self, well, text):
        for want in self.session.memory.wants():
            if isinstance(want, WantRollup) and well:
                fact: AnyFact = RollupLanded(chunks=want.chunks, text=text, start_ms=0, end_ms=1)
            elif isinstance(want, WantRollup):
                fact = RollupFailed(chunks=want.chunks, attempt=want.attempt, reason="x")
            elif well:
                fact = SummaryLanded(chunk=want.chunk, text=text, start_ms=0, end_ms=1, attempt=want.attempt)
            else:
                fact = SummaryFailed(chunk=want.chunk, attempt=want.attempt, reason="x")
            self.session.add(fact)

    @invariant()
    def bounded(self):
        memory = self.session.memory
        size, figures = memory.sizes, memory.statistics()
        assert figures["recent_tokens"] <= size.recent + size.line + 12 + 2
        assert figures["history_tokens"] <= size.history + size.passage
        assert figures["open_chunks"] <= 4
        assert len(memory.wants()) <= 2
        assert estimate(self.session.seed(self.tokens)) <= self.tokens

    def teardown(self):
        if hasattr(self, "session"):
            rebuilt = self.session.rebuilt()
            assert rebuilt.fingerprint() == self.session.memory.fingerprint()
            assert seed_text(rebuilt, self.tokens, "Be brief.", self.session.ms) == self.session.seed(
                self.tokens
            )


TestTalk = Talk.TestCase
TestTalk.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
