"""The engine's responses under our own fences, for as long as a session may last."""

from __future__ import annotations

from orchestrator.backends.native.responses import REMEMBERED, Responses
from orchestrator.session.fence import Fence


def test_what_is_remembered_of_responses_is_bounded() -> None:
    responses = Responses()
    for turn in range(10 * REMEMBERED):
        bound = responses.of(f"r{turn}")
        fence = Fence(0, 2 * turn + 1)
        assert responses.adopt(fence)
        assert responses.engine_id(fence) == responses.engine_id(bound.fence) == f"r{turn}"
        responses.end(bound)
    assert len(responses._known) <= REMEMBERED
    assert len(responses._by_fence) <= 2 * REMEMBERED
