"""What the user has given and was not answered yet: whether a response may be asked for."""

from __future__ import annotations


class Unanswered:
    """Asking for an answer takes all of it; when that answer ends before a word was said, it waits again."""

    def __init__(self) -> None:
        self.recorded = False
        """The backend has recorded input since the last answer that was asked for."""
        self._messages = 0
        self._asked_of = (False, 0)

    @property
    def messages(self) -> int:
        """Committed turns and messages."""
        return self._messages

    def said(self) -> None:
        """The user committed a turn, or added a message."""
        self._messages += 1

    def ask(self) -> None:
        """An answer to all of it was asked for."""
        self._asked_of = (self.recorded, self._messages)
        self.clear()

    def asked_in_vain(self) -> None:
        """That answer ended before a word was said."""
        recorded, messages = self._asked_of
        self.recorded, self._messages = self.recorded or recorded, self._messages + messages

    def clear(self) -> None:
        """The user took it back."""
        self.recorded, self._messages = False, 0
