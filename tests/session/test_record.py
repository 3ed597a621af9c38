"""The session's fold over its own log: what a session that is taken up again goes on from."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.session.backend import SessionConfig
from orchestrator.session.facts import (
    EpochBegun,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionEnded,
    SessionFact,
    SessionOpened,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import Line
from orchestrator.session.record import SessionRecord

CONFIG = SessionConfig(model="m", persona="default")


def folded(*facts: SessionFact | tuple[str, dict[str, object]]) -> SessionRecord:
    record = SessionRecord()
    for fact in facts:
        kind, data = fact if isinstance(fact, tuple) else (fact.kind, fact.data())
        record.apply(kind, data)
    return record


def test_nothing_is_known_of_a_new_session() -> None:
    assert folded().next_fence == Fence()
    assert folded(("frames_shown", {"count": 1})) == SessionRecord()


def test_its_clock_is_where_its_newest_frame_was() -> None:
    seen = [("frame_seen", {"frame_id": str(ms), "media_time_ms": ms}) for ms in (0, 2000, 1000)]
    assert folded(*seen).newest_ms == 2000


def test_the_newest_configuration_holds() -> None:
    talkative = SessionConfig(model="m", persona="talkative", seed=4)
    record = folded(SessionOpened("s", asdict(CONFIG)), SessionConfigured(asdict(talkative)))
    assert record.config == talkative


def test_a_session_taken_up_again_is_newer_than_all_its_output() -> None:
    record = folded(
        SessionOpened("s", asdict(CONFIG)),
        EpochBegun(3, "client_cancelled"),
        ResponseStarted("resp-1", 3, 7),
    )
    assert record.next_fence > Fence(3, 7)
    assert record.next_fence.epoch > 3
    assert record.unfinished == "resp-1"


def test_only_what_was_heard_is_in_the_conversation() -> None:
    record = folded(
        SessionOpened("s", asdict(CONFIG)),
        ("query_set", {"query_id": "q1", "text": "A bus?", "media_time_ms": 0}),
        ResponseStarted("resp-1", 0, 0),
        ResponseEnded("resp-1", "cancelled", "client_cancelled", "Yes, a red one", "Yes, a"),
        ResponseStarted("resp-2", 1, 1),
        ResponseEnded("resp-2", "failed", "engine_error", "", ""),
    )
    assert record.lines == [Line("user", "q1", "A bus?"), Line("assistant", "item_resp-1", "Yes, a")]


def test_an_end_is_undone_by_opening_again() -> None:
    ended = folded(SessionOpened("s", asdict(CONFIG)), SessionEnded("shutdown", None))
    assert ended.ended == "shutdown"
    ended.apply(SessionOpened.kind, SessionOpened("s", asdict(CONFIG)).data())
    assert ended.ended is None
