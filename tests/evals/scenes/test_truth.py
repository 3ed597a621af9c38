import re

from hypothesis import given
from hypothesis import strategies as st

from evals.scenes.spec import COLOURS, SHAPES, Backdrop, Kind, Scene, Sign, Thing
from evals.scenes.truth import describe, named, sightings, visible
from tests.evals.scenes.strategies import LENGTH_S, scenes

KIND = f"(?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})"
SIGHT = re.compile(rf"((?:An?|The) )({KIND}|sign [A-Z0-9 ]+?) (\d+)-(\d+)\.")


def thing(colour, shape, *spans):
    return Thing(Kind(colour, shape), 0.1, ((0.0, 0.5, 0.5),), spans, COLOURS[colour])


def made(*things, signs=()):
    return Scene("s", 1, 100.0, things, signs, (Backdrop(0.0, "flat", (0, 0, 0), (0, 0, 0)),))


def test_a_summary_is_written_so():
    stop = Sign("STOP", 0.1, 0.5, 0.5, ((59.5, 80.5),), (0, 0, 0), (0, 0, 0))
    scene = made(
        thing("blue", "square", (65.5, 100.0)),
        thing("red", "circle", (11.5, 47.5), (90.5, 95.5)),
        thing("green", "star", (11.5, 12.5)),
        signs=(stop,),
    )
    assert describe(scene, 0, 100) == (
        "A red circle 12-47. A green star 12-12. The sign STOP 60-80. "
        "A blue square 66-99. A red circle 91-95."
    )
    assert describe(scene, 40, 60) == "A red circle 40-47."
    assert describe(scene, 48, 60) == "Nothing."


def test_what_no_frame_shows_is_not_told():
    assert describe(made(thing("red", "circle", (11.2, 11.8))), 0, 100) == "Nothing."


def test_a_span_is_half_open():
    scene = made(thing("red", "circle", (11.0, 12.0)))
    assert [len(visible(scene, t)) for t in (10.0, 11.0, 12.0)] == [0, 1, 0]
    assert describe(scene, 0, 100) == "A red circle 11-11."


@given(scenes(), st.integers(0, int(LENGTH_S) - 1), st.integers(1, int(LENGTH_S)))
def test_a_summary_follows_its_grammar_and_tells_what_the_frames_show(scene, from_s, length):
    """Read back, it says of every frame what is to be seen in it."""
    to_s = min(from_s + length, int(LENGTH_S))
    told = describe(scene, from_s, to_s)
    assert told == (" ".join(sight.group() for sight in SIGHT.finditer(told)) or "Nothing.")
    sights = [(int(a), int(b), name) for _, name, a, b in SIGHT.findall(told)]
    assert [first for first, _, _ in sights] == sorted(first for first, _, _ in sights)
    for second in range(from_s, to_s):
        read = sorted(name for first, last, name in sights if first <= second <= last)
        assert read == sorted(named(item) for item in visible(scene, second))


@given(scenes(), st.integers(1, int(LENGTH_S) - 1))
def test_two_stretches_tell_together_what_one_tells(scene, middle):
    whole = {(named(i), t) for a, b, i in sightings(scene, 0, LENGTH_S) for t in range(a, b + 1)}
    parts = [*sightings(scene, 0, middle), *sightings(scene, middle, LENGTH_S)]
    assert whole == {(named(i), t) for a, b, i in parts for t in range(a, b + 1)}
