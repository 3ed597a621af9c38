from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Indel

from orchestrator.backends.replay.repeats import RepeatGuard, SpokenLines, folded


def run(line: str, text: list[str], ratio: float = 1.0) -> tuple[list[str], bool, str]:
    guard = RepeatGuard((folded(line),), ratio)
    shown = [guard.feed(t) for t in text]
    repeat, rest = guard.finish()
    return shown, repeat, rest


def test_an_equal_line_is_held_to_its_end_and_is_a_repeat() -> None:
    assert run("The door is open.", ["The  door", " IS open."]) == (["", ""], True, "")


def test_text_is_released_at_the_first_difference() -> None:
    assert run("The door is open.", ["The door is ", "shut", "."]) == (
        ["", "The door is shut", "."],
        False,
        "",
    )


def test_a_proper_prefix_of_the_line_is_no_repeat() -> None:
    assert run("The door is open.", ["The door"]) == ([""], False, "The door")


def test_a_line_that_goes_on_is_no_repeat() -> None:
    assert run("Fire", ["Fire", " in the hall"]) == (["", "Fire in the hall"], False, "")


def test_near_repeat_by_ratio() -> None:
    assert run("Three people are in the hall.", ["3 people are in the hall."], 0.85)[1]
    assert not run("Three people are in the hall.", ["Nobody is here now."], 0.85)[1]


@settings(deadline=None)
@given(
    line=st.text("ab c", max_size=12),
    text=st.lists(st.text("ab cd", max_size=5), max_size=5),
    ratio=st.sampled_from([0.6, 0.8, 0.95, 1.0]),
)
def test_held_text_is_released_exactly_when_it_cannot_become_a_repeat(
    line: str, text: list[str], ratio: float
) -> None:
    shown, repeat, rest = run(line, text, ratio)
    whole = "".join(text)
    line, plain = folded(line), folded(whole)
    alike = bool(line) and Indel.normalized_similarity(line, plain) >= ratio
    assert repeat == (alike and bool(whole) and not any(shown))
    assert repeat or "".join(shown) + rest == whole
    if any(shown):  # released: then no continuation was a repeat, the whole text among them
        assert not alike


def test_flaw_14_a_second_alarm_is_never_swallowed() -> None:
    """A repeat is suppressed, but a genuine silence or the re-arm time makes the line speakable again."""
    lines = SpokenLines(rearm_s=60)
    lines.spoken("Fire!", 1000)
    assert lines.repeats(2000) == ("fire!",)
    assert lines.repeats(61_000) == ()
    lines.silence()
    assert lines.repeats(3000) == ()


def test_flaw_14_two_lines_that_swing_are_repeats() -> None:
    """A, B, A is news each time; after that the swing itself is the repeat."""
    lines = SpokenLines(rearm_s=60)
    spoken = []
    for i, text in enumerate("ABABABABAB"):
        if folded(text) not in lines.repeats(i * 1000):
            spoken.append(text)
            lines.spoken(text, i * 1000)
    assert spoken == ["A", "B", "A"]
