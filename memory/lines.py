"""The lines Vigil writes into prompts: the pack's phrases in one language, their fields neutralised."""

from __future__ import annotations

from memory.neutral import control_tokens, neutralise
from prompts.pack import Pack


def seconds(ms: int) -> str:
    """Media time as the model reads it: seconds with one decimal, cut rather than rounded."""
    tenths = abs(ms) // 100
    return f"{'-' if ms < 0 and tenths else ''}{tenths // 10}.{tenths % 10}"


class Lines:
    """Phrases of ``pack`` in ``language``. Raises ``KeyError`` for a language the pack does not have."""

    def __init__(self, pack: Pack, language: str) -> None:
        self.language = language
        self._phrases = pack.phrases[language]
        self._tokens = control_tokens(pack)

    def clean(self, text: str) -> str:
        return neutralise(text, self._tokens)

    # --- the open turn -------------------------------------------------------------------------------

    def time_tag(self, ms: int) -> str:
        return self._phrases.line("time_tag", seconds=seconds(ms))

    def query(self, *texts: str) -> str:
        """The query header and the standing queries, one a line."""
        return "\n".join((self._phrases.line("query_header"), *map(self.clean, texts)))

    def query_cleared(self) -> str:
        return self._phrases.line("query_cleared")

    def interrupted(self, heard: str) -> str:
        if not heard.strip():
            return self._phrases.line("interrupted_unheard")
        return self._phrases.line("interrupted", heard=self.clean(heard))

    def delegation(self, question: str, text: str, ok: bool) -> str:
        name = "delegation_answer" if ok else "delegation_failed"
        return self._phrases.line(name, question=self.clean(question), text=self.clean(text))

    # --- a question to a solver ------------------------------------------------------------------------

    def solver_note(self, text: str) -> str:
        return self._phrases.line("solver_note", text=self.clean(text))

    def solver_question(self, text: str) -> str:
        return self._phrases.line("solver_question", text=self.clean(text))

    # --- the head ------------------------------------------------------------------------------------

    def history_header(self) -> str:
        return self._phrases.line("history_header") + "\n" + self._phrases.line("history_notice")

    def range(self, start_ms: int, end_ms: int) -> str:
        return self._phrases.line("range", start=seconds(start_ms), end=seconds(end_ms))

    def passage(self, start_ms: int, end_ms: int, text: str) -> str:
        """A summary or a long-term block under its time range."""
        return self.range(start_ms, end_ms) + "\n" + self.clean(text)

    def gap(self, start_ms: int, end_ms: int) -> str:
        return self._phrases.line("gap", start=seconds(start_ms), end=seconds(end_ms))

    def qa_header(self) -> str:
        return self._phrases.line("qa_header") + "\n" + self._phrases.line("qa_notice")

    def qa_query(self, index: int, ms: int, text: str) -> str:
        return self._phrases.line("qa_query", index=str(index), time=seconds(ms), text=self.clean(text))

    def qa_response(self, ms: int, text: str) -> str:
        return self._phrases.line("qa_response", time=seconds(ms), text=self.clean(text))

    def qa_unasked(self, index: int, ms: int, text: str) -> str:
        return self._phrases.line("qa_unasked", index=str(index), time=seconds(ms), text=self.clean(text))

    def qa_digest(self, count: int, start_ms: int, end_ms: int) -> str:
        return self._phrases.line("qa_digest", count=str(count), start=seconds(start_ms), end=seconds(end_ms))

    def no_query(self) -> str:
        return self._phrases.line("no_query")
