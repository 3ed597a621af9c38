from __future__ import annotations

from orchestrator.backends.replay.operations import Operations


def test_an_operation_is_answered_when_its_last_frame_rode() -> None:
    operations = Operations()
    operations.add("op1", ["a", "b"])
    operations.add("op2", ["c"])
    assert operations.riding(1, ["a"]) == ()
    assert operations.answered(1, ["a"]) == ()
    assert operations.riding(2, ["b", "c"]) == ("op1", "op2")
    assert operations.answered(2, ["b"]) == ("op1",)
    assert operations.answered(3, ["c"]) == ("op2",)


def test_what_arrives_mid_decision_waits_for_the_next_tick() -> None:
    operations = Operations()
    operations.add("frame", ["a"])
    operations.add("query", first_tick=2)
    assert operations.answered(1, ["a"]) == ("frame",)
    assert operations.answered(2, []) == ("query",)


def test_an_operation_left_without_frames_is_told_why() -> None:
    operations = Operations()
    operations.add("op", ["a", "b"])
    operations.dropped("a", "late")
    assert operations.unanswerable == []
    operations.dropped("b", "late")
    assert operations.unanswerable == [("op", "late")]
    assert operations.known("op") and operations.statistics()["waiting"] == 0


def test_a_thinned_frame_is_answered_by_the_tick_of_its_neighbours() -> None:
    operations = Operations()
    operations.add("op", ["a"])
    operations.dropped("a", "thinned")
    assert operations.unanswerable == []
    assert operations.answered(1, ["b"]) == ("op",)


def test_memory_of_completed_operations_is_bounded() -> None:
    operations = Operations()
    for i in range(5000):
        operations.add(f"op{i}")
        operations.answered(i, [])
    assert operations.statistics() == {"waiting": 0, "remembered": 256}
    assert operations.known("op4999") and not operations.known("op0")
