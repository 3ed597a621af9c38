"""What a deletion leaves of the window."""

from __future__ import annotations

from memory.plan import Image
from memory.rebuild import stripped
from tests.memory.driver import Driver


def test_a_turn_keeps_what_else_it_showed() -> None:
    driver = Driver()
    driver.ask("what?", "q1")
    driver.frame()
    driver.frame()
    driver.tick("an answer", frame=False)
    driver.ask("and now?", "q2")
    driver.tick()
    driver.tick()
    parts = driver.memory.parts
    turns = parts.live_window.turns
    parts.deleted.frames |= {"f0", "f2000", "f3000"}
    parts.deleted.queries.add("q1")
    parts.deleted.rebuild = True
    kept = stripped(parts, turns)
    assert [t.seq for t in kept] == [0, 1]  # the third turn showed nothing else
    assert [p.frame.frame_id for p in kept[0].turn.user if isinstance(p, Image)] == ["f1000"]
    assert "what?" not in str(kept[0].turn.user) and "<1.0 seconds>" in str(kept[0].turn.user)
    assert kept[0].turn.said == turns[0].turn.said
    assert "and now?" in str(kept[1].turn.user) and not kept[1].frames
    assert kept[0].tokens < turns[0].tokens
    assert not parts.deleted.rebuild and not parts.deleted.frames


def test_what_shows_nothing_deleted_stays_the_same_object() -> None:
    driver = Driver()
    driver.run(3)
    parts = driver.memory.parts
    parts.deleted.frames.add("f1000")
    turns = parts.live_window.turns
    kept = stripped(parts, turns)
    assert kept == [turns[0], turns[2]] and kept[0] is turns[0]
