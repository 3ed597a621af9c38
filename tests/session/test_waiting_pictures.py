"""How many pictures of messages may wait, and how large they may be together."""

import pytest

from orchestrator.session.commands import AppendInput
from orchestrator.session.waiting_pictures import MAX_PICTURE_BYTES, MAX_PICTURES, WaitingPictures
from orchestrator.wire.errors import ResourceExhausted
from tests.fakes.backend import frame


def pictures(count: int, size: int = 4) -> tuple[AppendInput, ...]:
    return tuple(AppendInput(f"a{number}", frame(b"x" * size)) for number in range(count))


def test_as_many_wait_as_may_and_one_more_when_one_is_over() -> None:
    waiting = WaitingPictures()
    for each in pictures(MAX_PICTURES):
        waiting.check((each,))
        waiting.add(each)
    with pytest.raises(ResourceExhausted) as refused:
        waiting.check(pictures(1))
    assert refused.value.code == "input_backpressure"
    waiting.over("nobody's")
    waiting.over("a0")
    waiting.check(pictures(1))
    waiting.clear()
    waiting.check(pictures(MAX_PICTURES))


def test_their_bytes_are_bounded_together() -> None:
    waiting = WaitingPictures()
    waiting.add(pictures(1, MAX_PICTURE_BYTES - 4)[0])
    waiting.check(pictures(1, 4))
    with pytest.raises(ResourceExhausted):
        waiting.check(pictures(1, 5))
