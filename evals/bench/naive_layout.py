"""The layout that Vigil is measured against: memory text rebuilt into the head whenever it changes.

Modelled after how the known orchestrators of this kind lay out their prompts: all memory is glued to the
first user message on every tick; a summary enters it as soon as it lands; a full chunk is dropped at once;
the Q&A history has no bound.
"""

from __future__ import annotations

from typing import Any

from evals.bench.accounting_engine import SUMMARY, AccountingEngine


class NaiveLayout:
    """One session. ``tick`` sends one decision for one frame.

    :param chunk: frames until the window is dropped; :param lands: ticks until its summary is there
    """

    def __init__(self, engine: AccountingEngine, system: str, *, chunk: int = 100, lands: int = 20) -> None:
        self.engine = engine
        self._system, self._chunk, self._lands = system, chunk, lands
        self._long: list[str] = []
        self._middle: list[str] = []
        self._qa: list[str] = []
        self._waiting: list[tuple[int, str]] = []
        self._turns: list[tuple[list[dict[str, Any]], str]] = []
        self._ticks = 0
        self._query = ""

    def ask(self, text: str) -> None:
        if self._query:
            self._qa.append(f"#{len(self._qa) + 1} [Query] {self._query}")
        self._query = text

    def tick(self, uuid: str) -> None:
        self._ticks += 1
        self._land()
        user = [
            {"type": "text", "text": f"<{self._ticks - 1}.0 seconds>"},
            {"type": "image_url", "uuid": uuid},
        ]
        answer = self.engine.decide()
        self.engine.last_prompt, _, _ = self.engine.count(
            "decide", {"messages": self._messages(user)}, answer
        )
        self._turns.append((user, answer))
        if len(self._turns) == self._chunk:
            end = self._ticks
            self._waiting.append((end + self._lands, f"<{end - self._chunk}-{end}>\n{SUMMARY * 6}"))
            self._turns = []

    def _land(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._ticks:
            self._middle.append(self._waiting.pop(0)[1])
        if len(self._middle) > 5:
            self._long = [*self._long, SUMMARY * 6][-15:]
            self._middle = self._middle[5:]

    def _messages(self, user: list[dict[str, Any]]) -> list[dict[str, Any]]:
        memory = "\n\n".join(part for part in (*self._long, *self._middle, *self._qa, self._query) if part)
        messages: list[dict[str, Any]] = [{"role": "system", "content": self._system}]
        for content, answer in [*self._turns, (user, "")]:
            first = [{"type": "text", "text": memory}] if len(messages) == 1 and memory else []
            messages.append({"role": "user", "content": [*first, *content]})
            if answer:
                messages.append({"role": "assistant", "content": answer})
        return messages
