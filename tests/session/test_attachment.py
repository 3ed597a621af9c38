"""Attachments: tokens rotate, takeovers displace, stale sockets change nothing, lost answers are survived."""

from collections.abc import Iterator

import pytest

from orchestrator.session.attachment import Attachments, Ticket
from orchestrator.wire.errors import VigilError


def make(*, resumable: bool = True) -> Attachments:
    secrets: Iterator[str] = (f"secret-{n}" for n in range(1, 100))
    return Attachments(lambda: next(secrets), resumable=resumable)


def refusal(seats: Attachments, token: str) -> str:
    with pytest.raises(VigilError) as refused:
        seats.resume(token)
    return refused.value.code


def test_the_first_socket_gets_generation_one_and_a_token() -> None:
    assert make().open() == Ticket(1, "secret-1", None)


def test_every_resume_rotates_the_token() -> None:
    seats = make()
    seats.open()
    seats.detach(1)
    assert seats.resume("secret-1") == Ticket(2, "secret-2", None)
    assert refusal(seats, "secret-1") == "invalid_resume_token"
    seats.detach(2)
    seats.alive(2)
    assert seats.resume("secret-2").generation == 3


def test_a_takeover_displaces_and_the_loser_changes_nothing() -> None:
    seats = make()
    seats.open()
    assert seats.resume("secret-1") == Ticket(2, "secret-2", displaced=1)
    assert not seats.detach(1)
    assert seats.attached
    assert refusal(seats, "secret-1") == "invalid_resume_token"


def test_a_bad_token_disturbs_nobody() -> None:
    seats = make()
    seats.open()
    assert refusal(seats, "guess") == "invalid_resume_token"
    assert (seats.generation, seats.attached) == (1, True)


def test_a_lost_answer_can_be_asked_for_again_while_nobody_is_attached() -> None:
    seats = make()
    seats.open()
    seats.detach(1)
    seats.resume("secret-1")
    assert refusal(seats, "secret-1") == "invalid_resume_token", "attached: the old one is void"
    seats.detach(2)
    assert seats.resume("secret-1") == Ticket(3, "secret-3", None)
    seats.detach(3)
    assert refusal(seats, "secret-2") == "invalid_resume_token"


def test_a_sign_of_life_voids_the_presented_token_for_good() -> None:
    seats = make()
    seats.open()
    seats.detach(1)
    seats.resume("secret-1")
    seats.alive(2)
    seats.detach(2)
    assert refusal(seats, "secret-1") == "invalid_resume_token"
    assert seats.resume("secret-2").generation == 3


def test_an_invitation_joins_once() -> None:
    seats = make()
    seats.open()
    invitation = seats.invite()
    assert seats.resume(invitation).displaced == 1
    assert refusal(seats, invitation) == "invalid_resume_token"


def test_an_invitation_leaves_the_attached_sockets_token_valid() -> None:
    seats = make()
    first = seats.open()
    seats.invite()
    seats.detach(1)
    assert first.token is not None
    assert seats.resume(first.token).generation == 2


def test_where_sessions_cannot_be_resumed() -> None:
    seats = make(resumable=False)
    assert seats.open() == Ticket(1, None, None)
    assert refusal(seats, "anything") == "unsupported_session_resume"
    with pytest.raises(VigilError):
        seats.invite()


def test_only_hashes_are_kept() -> None:
    seats = make()
    seats.open()
    seats.invite()
    assert "secret" not in repr(vars(seats))


def test_detaching_twice_is_detaching_once() -> None:
    seats = make()
    seats.open()
    assert seats.detach(1)
    assert not seats.detach(1)
