"""What of a recogniser's output counts as words, and who is transcribed next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.asr import MAX_CHARS, Segment, words_of
from bridges.asr_queue import FairQueue


@pytest.mark.parametrize(
    ("segment", "words"),
    [
        (Segment(" Hello there. ", 0.1, -0.3, 1.0), "Hello there."),
        (Segment("Thank you.", 0.9, -1.2, 1.0), ""),
        (Segment("Thank you.", 0.9, -0.2, 1.0), "Thank you."),
        (Segment("gibberish", 0.1, -1.8, 1.0), ""),
        (Segment("ha " * 50, 0.1, -0.3, 9.0), ""),
        (Segment("[coughing]"), ""),
        (Segment("(sighs) well *noise* ♪"), "well"),
        (Segment(" ... "), ""),
        (Segment("a\nb\x00c"), "a b c"),
        (Segment("no figures"), "no figures"),
    ],
)
def test_what_counts(segment: Segment, words: str) -> None:
    assert words_of([segment]) == words


@given(st.lists(st.text(max_size=300)))
def test_words_are_one_bounded_line(texts: list[str]) -> None:
    words = words_of([Segment(text) for text in texts])
    assert len(words) <= MAX_CHARS and words == " ".join(words.split()) and words.isprintable()


def test_an_answer_of_a_server_is_read() -> None:
    given_ = {"text": "x", "no_speech_prob": 0.5, "avg_logprob": -0.1, "compression_ratio": 1.5}
    assert Segment.of(given_) == Segment("x", 0.5, -0.1, 1.5)
    assert Segment.of({}) == Segment("")


class Job:
    def __init__(self, stream: str, number: int, final: bool) -> None:
        self.stream, self.number, self.final = stream, number, final


def test_streams_take_turns_and_whole_utterances_go_first() -> None:
    queue: FairQueue[Job] = FairQueue(10, 4)
    partial = Job("c", 0, False)
    assert queue.add("c", partial, final=False) == (True, [])
    for stream, count in (("a", 3), ("b", 1)):
        for number in range(count):
            queue.add(stream, Job(stream, number, True), final=True)
    order = [queue.take() for _ in range(5)]
    assert [(j.stream, j.number) for j in order if j] == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("c", 0)]
    assert queue.take() is None


steps = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=100)


@given(steps)
def test_whatever_comes_it_is_bounded_and_nothing_is_lost_unseen(todo: list[tuple[str, bool, bool]]) -> None:
    queue: FairQueue[Job] = FairQueue(6, 2)
    waiting: list[Job] = []
    for number, (stream, final, takes) in enumerate(todo):
        if takes:
            job = queue.take()
            assert (job is None) == (not waiting)
            if job is not None:
                assert job.final or not any(other.final for other in waiting)
                earlier = [o for o in waiting if o.stream == job.stream and o.final and o.number < job.number]
                assert not (job.final and earlier)
                waiting.remove(job)
            continue
        job = Job(stream, number, final)
        taken, gone = queue.add(stream, job, final=final)
        assert all(not each.final for each in gone)
        waiting = [each for each in waiting if each not in gone] + [job] * taken
        assert len(queue) == len(waiting) <= 6
    for job in waiting:
        queue.remove(job)
    assert len(queue) == 0


def test_who_gave_up_leaves_the_row() -> None:
    queue: FairQueue[Job] = FairQueue(3, 2)
    one, two = Job("a", 0, True), Job("a", 1, True)
    queue.add("a", one, final=True)
    queue.add("a", two, final=True)
    queue.remove(one)
    queue.remove(one)
    assert queue.clear() == [two]
