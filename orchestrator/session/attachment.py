"""Attachments: which socket a session talks to, and the secret that lets another one take its place.

A token is shown once and only its hash is kept. Every resume rotates it; the old one is void at once. Only if
the resuming socket breaks before it gave a sign of life is the token it presented honoured again, and only
while nobody is attached: the answer may have been lost.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.wire.errors import InvalidRequest, Unsupported

Tokens = Callable[[], str]
"""Makes a fresh secret: 32 random bytes, URL-safe."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a socket gets when it is attached.

    :param token: resumes the session later; ``None`` where sessions cannot be resumed
    :param displaced: generation of the socket that has just lost its place, if there was one
    """

    generation: int
    token: str | None
    displaced: int | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """What is remembered of a session's sockets beyond its process.

    :param token_hash: SHA-256, in hex, of the token that resumes it
    :param ceiling: no event was ever numbered above this
    """

    generation: int = 0
    token_hash: str | None = None
    ceiling: int = 0


class Attachments:
    """:param former: the seat in an earlier process, whose token is honoured once more"""

    def __init__(self, tokens: Tokens, *, resumable: bool, former: Seat | None = None) -> None:
        former = former or Seat()
        self._tokens = tokens
        self._resumable = resumable
        self._current = bytes.fromhex(former.token_hash) if former.token_hash else None
        self._former: bytes | None = None
        self._invitation: bytes | None = None
        self.generation = former.generation
        self.attached = False

    @property
    def token_hash(self) -> str | None:
        """Of the token that resumes the session."""
        return None if self._current is None else self._current.hex()

    def open(self) -> Ticket:
        """The first socket of a session."""
        return self._seat(None)

    def invite(self) -> str:
        """A secret for one more socket to join; it takes over from whoever is attached."""
        if not self._resumable:
            raise Unsupported("sessions of this model cannot be joined", code="unsupported_session_resume")
        token = self._tokens()
        self._invitation = _digest(token)
        return token

    def check(self, token: str) -> None:
        """Raise ``unsupported_session_resume`` or ``invalid_resume_token``; disturbs nobody."""
        if not self._resumable:
            raise Unsupported("sessions of this model cannot be resumed", code="unsupported_session_resume")
        presented = _digest(token)
        accepted = [self._current, self._invitation]
        if not self.attached:
            accepted.append(self._former)
        # Every candidate is compared, so that time tells nothing.
        matches = [hmac.compare_digest(known, presented) for known in accepted if known is not None]
        if not any(matches):
            raise InvalidRequest(
                "the resume token is not valid; it changes at every resume", code="invalid_resume_token"
            )

    def resume(self, token: str) -> Ticket:
        """Attach the socket that presents a valid token; whoever was attached is displaced."""
        self.check(token)
        return self._seat(_digest(token))

    def alive(self, generation: int) -> None:
        """The socket sent something: it has its new token, so the one it presented is void for good."""
        if generation == self.generation:
            self._former = None

    def detach(self, generation: int) -> bool:
        """A socket is gone. False when it had lost its place before: nothing changes then."""
        if generation != self.generation or not self.attached:
            return False
        self.attached = False
        return True

    def _seat(self, presented: bytes | None) -> Ticket:
        displaced = self.generation if self.attached else None
        token = self._tokens() if self._resumable else None
        self._former = presented
        self._current = None if token is None else _digest(token)
        self._invitation = None
        self.generation += 1
        self.attached = True
        return Ticket(self.generation, token, displaced)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
