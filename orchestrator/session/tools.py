"""Calls of the client's own tools: each is a small response of its own, and is answered once, by an item."""

from __future__ import annotations

from orchestrator.session.backend import ToolCalled
from orchestrator.session.commands import ReturnOutput
from orchestrator.session.effects import BackendTell
from orchestrator.session.events import (
    FunctionArguments,
    FunctionArgumentsDone,
    ItemAdded,
    ItemCreated,
    ItemDone,
    OutputItemAdded,
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
)
from orchestrator.session.history import History
from orchestrator.session.items import Call, Item
from orchestrator.session.playback import Cursors
from orchestrator.session.shared import Shared
from orchestrator.session.told import ToolResult
from orchestrator.wire.errors import InvalidRequest

MAX_CALLS = 64
"""Calls remembered that wait for their output; the oldest is forgotten first."""


class Tools:
    def __init__(self, shared: Shared, history: History) -> None:
        self._shared = shared
        self._history = history
        self._open: dict[str, str] = {}

    def called(self, called: ToolCalled) -> None:
        """Tell the client of a call."""
        shared, fence = self._shared, called.fence
        self._open[called.call_id] = called.name
        while len(self._open) > MAX_CALLS:
            self._open.pop(next(iter(self._open)))
        response_id, item_id = shared.ids("resp_"), shared.ids("item_")
        call = Call(called.call_id, called.name, called.arguments)
        begun = Item(item_id, "assistant", "in_progress", call=Call(called.call_id, called.name, ""))
        item = Item(item_id, "assistant", call=call)
        previous = self._history.add(item)
        shared.emit_all(
            (
                ResponseCreated(fence, response_id, ("text",), {}),
                ItemAdded(previous, begun),
                ItemCreated(previous, begun),
                OutputItemAdded(fence, response_id, begun),
                FunctionArguments(fence, response_id, item_id, called.call_id, called.arguments),
                FunctionArgumentsDone(
                    fence, response_id, item_id, called.call_id, called.name, called.arguments
                ),
                OutputItemDone(fence, response_id, item),
                ItemDone(previous, item),
                ResponseDone(fence, response_id, "completed", None, item, False, Cursors(), {}, {}),
            )
        )

    def returned(self, command: ReturnOutput) -> None:
        """Hand the output of a call to the backend; its item is announced when that has it."""
        name = self._open.pop(command.call_id, None)
        if name is None:
            raise InvalidRequest(
                "no call of that id waits for its output",
                code="invalid_function_call_output",
                param="item.call_id",
            )
        self._history.check_free(command.item_id)
        result = ToolResult(command.call_id, command.output, command.item_id)
        self._shared.do(BackendTell(result, self._shared.fence, command=command))

    def told(self, result: ToolResult, *, taken: bool) -> None:
        if not taken:
            return
        item = Item(result.item_id, "tool", call=Call(result.call_id, output=result.output))
        previous = self._history.add(item)
        self._shared.emit_all(
            (ItemAdded(previous, item), ItemCreated(previous, item), ItemDone(previous, item))
        )
