"""Sessions stay from step to step; one that is refused is tried again as long as the job insists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from evals.load import drive
from evals.load.crowd import Crowd
from evals.load.drive import Pace, Tally, stage
from evals.load.job import Job
from evals.load.session import Hears, Lost, Refused
from tests.fakes.pictures import jpeg

JOB = Job("", "", 8, "", "Say.", 0.02, 0.2, warm_s=0.0, fill=4, opening_s=0.0)


class Scripted:
    """Decides every frame at once; ``opens``: raises what is to be raised."""

    busy = False
    waits = True

    def __init__(self, hears: Hears, opens: Callable[[], None], shown: list[int]) -> None:
        self._hears, self._opens, self._shown = hears, opens, shown
        self.closed = False

    async def open(self) -> None:
        self._opens()

    async def show(self, picture: bytes, media_ms: int, sound: bytes | None = None) -> None:
        self._shown.append(media_ms)
        self._hears.decided(media_ms)

    async def ask(self, query: str) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


class Door:
    """Opens sessions; refuses the first ``refusals`` of them."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.sessions: list[Scripted] = []
        self.shown: dict[int, list[int]] = {}

    def __call__(self, number: int, hears: Hears) -> Scripted:
        made = Scripted(hears, self._open, self.shown.setdefault(number, []))
        self.sessions.append(made)
        return made

    def _open(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Refused("resource_exhausted")


def crowd(door: Door, job: Job = JOB) -> Crowd:
    return Crowd(job, door, [jpeg(1)], [])


async def step(each: Crowd, sessions: int, job: Job = JOB) -> Tally:
    tally = Tally()
    await each.reach(sessions, tally)
    await each.keep_pace(sessions, Pace(job, sessions), tally)
    return tally


async def test_a_step_finds_the_sessions_of_the_one_before() -> None:
    door = Door()
    each = crowd(door)
    assert (await step(each, 2)).opened == 2
    before = {number: len(shown) for number, shown in door.shown.items()}
    tally = await step(each, 3)
    assert tally.opened == 3 and len(door.sessions) == 3
    assert all(len(door.shown[number]) > shown for number, shown in before.items())
    assert door.shown[0] == sorted(set(door.shown[0])), "its media time runs on"
    fewer = await step(each, 1)
    assert fewer.opened == 1 and fewer.samples
    assert not any(session.closed for session in door.sessions)
    await each.leave()
    assert all(session.closed for session in door.sessions)


async def test_a_lost_session_is_replaced_in_the_next_step() -> None:
    door = Door()
    each = crowd(door)
    await each.reach(2, Tally())

    async def loses(picture: bytes, media_ms: int, sound: bytes | None = None) -> None:
        raise Lost("session_expired")

    door.sessions[0].show = loses  # type: ignore[method-assign]
    tally = Tally()
    await each.keep_pace(2, Pace(JOB, 2), tally)
    assert tally.lost == {"session_expired": 1} and door.sessions[0].closed
    assert (await step(each, 2)).opened == 2
    assert len(door.sessions) == 3


async def test_who_is_refused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "AGAIN_S", 0.0)
    door, tally = Door(3), Tally()
    await crowd(door, replace(JOB, insist_s=60.0)).reach(1, tally)
    assert (tally.opened, dict(tally.refused)) == (1, {}) and len(door.sessions) == 4
    door, tally = Door(1), Tally()
    await crowd(door).reach(2, tally)
    assert (tally.opened, tally.refused) == (1, {"resource_exhausted": 1})


async def test_arrivals_come_one_by_one_and_leave() -> None:
    door, tally = Door(), Tally()
    await crowd(door, replace(JOB, sessions=3, each_at_once=True, opening_s=0.03)).arrive(tally)
    assert tally.opened == 3 and tally.samples
    assert all(session.closed for session in door.sessions)


@pytest.mark.parametrize("sessions", [4, 16, 50])
def test_windows_are_at_all_stages(sessions: int) -> None:
    """In each quarter of a window there are about as many sessions as in any other."""
    stages = [stage(number) for number in range(sessions)]
    quarters = [sum(q / 4 <= each < (q + 1) / 4 for each in stages) for q in range(4)]
    assert max(quarters) - min(quarters) <= 3
    assert stage(0) == 0.5
