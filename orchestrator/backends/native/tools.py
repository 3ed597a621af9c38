"""Calls of the client's tools, under ids of our own: the engine's never leak."""

from __future__ import annotations

from bridges.duplex_client.link import ToolCall
from orchestrator.session.backend import Ids, ToolCalled
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import Conflict

MAX_CALLS = 64
"""That may wait for their output; the oldest is forgotten first."""


class ToolCalls:
    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._open: dict[str, tuple[int, str]] = {}  # generation and the engine's own id

    def called(self, call: ToolCall, generation: int, fence: Fence) -> ToolCalled:
        call_id = self._ids("call_")
        self._open[call_id] = (generation, call.call_id)
        if len(self._open) > MAX_CALLS:
            self._open.pop(next(iter(self._open)))
        return ToolCalled(fence, call_id, call.name, call.arguments)

    def engine_id(self, call_id: str, generation: int) -> str:
        """The engine's own id of a call, for the engine session that made it."""
        made_by, engine_call = self._open.pop(call_id, (-1, ""))
        if made_by != generation:
            raise Conflict(
                "the engine session that made this call is gone",
                code="invalid_function_call_output",
                param="item.call_id",
            )
        return engine_call
