"""Which of a session's answers are spoken when more of them come than can be said."""

from __future__ import annotations

from orchestrator.session.backend import BackendOutput, SpeechPolicy, TextDelta, TurnEnd


class SpeechTurns:
    """Counts answers, from 1, as their first words come from the model; pure.

    With ``queue`` every answer is spoken in its turn. With ``latest`` the one being spoken is said to its end
    and of those that wait only the newest is; with ``interrupt`` the newest is spoken at once. What is not
    spoken is text all the same.
    """

    def __init__(self) -> None:
        self.newest = 0
        self._open = False
        self._first_spoken = 1

    def came(self, output: BackendOutput, policy: SpeechPolicy) -> bool:
        """Note what the model gave; True: an answer begins with it."""
        begins = isinstance(output, TextDelta) and not self._open
        if begins:
            self._open = True
            self.newest += 1
            if policy is not SpeechPolicy.QUEUE:
                self._first_spoken = self.newest
        elif isinstance(output, TurnEnd):
            self._open = False
        return begins

    def cancelled(self) -> None:
        """What was being written goes no further."""
        self._open = False

    def spoken(self, number: int) -> bool:
        """That answer may begin to be spoken now."""
        return number >= self._first_spoken
