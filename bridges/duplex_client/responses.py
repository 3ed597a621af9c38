"""The engine's responses: what each event says of one, once, and nothing of one that is over."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridges.duplex_client import decode
from bridges.duplex_client.decode import Malformed, OutputAudio, mapping
from bridges.duplex_client.link import (
    AudioChunk,
    EngineEvent,
    Listening,
    ResponseCreated,
    ResponseDone,
    Speaking,
    SpokenText,
    StageMetrics,
    ToolCall,
)

REMEMBERED = 512
"""Responses that are over and whose late events are known as such."""
MAX_OPEN = 64
_STATUSES = frozenset({"completed", "cancelled", "failed", "incomplete"})


@dataclass(slots=True)
class _Open:
    """:param told: it was reported; a tool's call has a response of its own, which never is
    :param request: figures that came with its announcement
    """

    told: bool = False
    tool: bool = False
    speaking: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)


class Responses:
    """One session's responses.

    :param counts: what was dropped, by kind
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._over: OrderedDict[str, None] = OrderedDict()
        self._tools: OrderedDict[str, str] = OrderedDict()
        self.auto = False
        """The session answers by itself: a listen that names a response ends it."""
        self.audio = OutputAudio()

    def created(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        """Told with the next event of it, which shows whether it is a tool's."""
        name = decode.response_id(event)
        if name in self._open or name in self._over:
            self._counts["repeated"] += 1
            return []
        self._open[name] = _Open(request=decode.request_metrics(event))
        if len(self._open) > MAX_OPEN:
            raise Malformed(f"more than {MAX_OPEN} responses are open")
        return []

    def item(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        """``response.output_item.added``, or an item of the conversation: the tools' names are here."""
        item = mapping(event.get("item"))
        call_id, tool = item.get("call_id"), item.get("name")
        if item.get("type") == "function_call" and isinstance(call_id, str) and isinstance(tool, str):
            self._tools[call_id] = tool
            if len(self._tools) > REMEMBERED:
                self._tools.popitem(last=False)
        if "response_id" not in event:
            return []
        found = self._of(event)
        if found is None:
            return []
        name, response = found
        if item.get("type") == "function_call" and not response.told:
            response.tool = True
        return self._tell(name, response)

    def speak(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        found = self._of(event)
        if found is None:
            return []
        name, response = found
        events = self._tell(name, response)
        if not response.speaking:
            response.speaking = True
            events.append(Speaking(name))
        return [*events, *self._metrics(event, name)]

    def sound(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        found = self._of(event)
        if found is None:
            return []
        name, response = found
        metadata = mapping(event.get("metadata"))
        pcm, rate = decode.audio(event, self.audio)
        end = metadata.get("end_of_turn") is True
        chunk = AudioChunk(name, pcm, rate, decode.marks(metadata), end)
        told = [*self._tell(name, response), *self._metrics(event, name)]
        return [*told, chunk] if pcm or end else told

    def words(self, event: Mapping[str, Any], *, spoken: bool) -> list[EngineEvent]:
        found = self._of(event)
        if found is None:
            return []
        name, response = found
        said = decode.text(event, "delta")
        told = [*self._tell(name, response), *self._metrics(event, name)]
        return [*told, SpokenText(name, said, spoken)] if said else told

    def listen(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        response = event.get("response")
        if not isinstance(response, Mapping):
            raise Malformed("`response` is no object")
        metadata = mapping(response.get("metadata"))
        reason = metadata.get("reason")
        named = event.get("response_id", response.get("id"))
        ends: str | None = None
        events: list[EngineEvent] = []
        if named is not None:
            found = self._of(event)
            if found is None:
                return []
            events = self._tell(*found)
            # In turn mode the model may speak on after such a listen; there its `response.done` is the end.
            if self.auto:
                ends = found[0]
                self._close(ends)
        decided = Listening(
            ends,
            reason if isinstance(reason, str) else None,
            metadata.get("model_listen") is True,
            metadata,
        )
        return [*events, *self._metrics(event, ends), decided]

    def done(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        found = self._of(event)
        if found is None:
            return []
        name, response = found
        said = mapping(event.get("response"))
        details = mapping(said.get("status_details"))
        reason = details.get("reason", mapping(details.get("error")).get("code"))
        status = said.get("status")
        events = [*self._tell(name, response), *self._metrics(event, name)]
        self._close(name)
        if response.tool:
            return []
        if status not in _STATUSES:
            self._counts["malformed"] += 1
            return [*events, ResponseDone(name, "failed", decode.BAD)]
        return [*events, ResponseDone(name, str(status), reason if isinstance(reason, str) else None)]

    def tool_call(self, event: Mapping[str, Any]) -> list[EngineEvent]:
        found = self._of(event)
        if found is None:
            return []
        call_id = decode.name_of(event, "call_id")
        tool = event.get("name", self._tools.get(call_id))
        if not isinstance(tool, str) or not tool:
            raise Malformed("a tool call without the tool's name")
        return [ToolCall(call_id, tool, decode.text(event, "arguments"))]

    def _of(self, event: Mapping[str, Any]) -> tuple[str, _Open] | None:
        """The open response an event is about; events of others are dropped and counted."""
        name = decode.response_id(event)
        response = self._open.get(name)
        if response is None:
            self._counts["late" if name in self._over else "unknown_response"] += 1
            return None
        return name, response

    def _tell(self, name: str, response: _Open) -> list[EngineEvent]:
        if response.told or response.tool:
            return []
        response.told = True
        figures = [StageMetrics(name, {}, response.request)] if response.request else []
        return [ResponseCreated(name), *figures]

    def _metrics(self, event: Mapping[str, Any], name: str | None) -> list[EngineEvent]:
        found, request = decode.stages(event), decode.request_metrics(event)
        return [StageMetrics(name, found, request)] if found or request else []

    def _close(self, name: str) -> None:
        del self._open[name]
        self._over[name] = None
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
