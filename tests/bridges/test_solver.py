"""Solvers over a real socket: what they are sent, who is asked, and every way of getting no answer."""

from __future__ import annotations

import asyncio
import base64
import logging

import pytest

from bridges.solver import ANSWER_CHARS, ChatSolver, SolverAsk, SolverChain, SolverError, SolverFrame
from tests.fakes.clock import VirtualClock, settle
from tests.fakes.pictures import jpeg, png
from tests.fakes.solver import FakeSolver, Reply

FRAMES = (SolverFrame("<1.0 seconds>", jpeg(1)), SolverFrame("<2.0 seconds>", png(2)))
ASK = SolverAsk("Answer briefly.", "[Question] Who painted this?", FRAMES)
BLIND = SolverAsk("Answer briefly.", "[Question] Who painted this?")
PARAMS = {"max_tokens": 64, "temperature": 0.2}


def solver(fake: FakeSolver, name: str = "a", **more: object) -> ChatSolver:
    return ChatSolver(name, fake.url, fake.model, PARAMS, **more)  # type: ignore[arg-type]


async def test_a_text_solver_gets_words_alone() -> None:
    async with FakeSolver([" Vermeer. "]) as fake:
        asked = solver(fake, api_key="secret")
        assert await asked.solve(ASK) == "Vermeer."
        (seen,) = fake.asked
        assert seen.path == "/v1/chat/completions"
        assert seen.headers["authorization"] == "Bearer secret"
        assert seen.body == {
            "model": "solver",
            "stream": False,
            "messages": [
                {"role": "system", "content": "Answer briefly."},
                {"role": "user", "content": "[Question] Who painted this?"},
            ],
            **PARAMS,
        }
        await asked.aclose()


async def test_a_solver_that_takes_images_gets_the_frames_after_their_times() -> None:
    async with FakeSolver() as fake:
        asked = solver(fake, images=True)
        await asked.solve(ASK)
        (seen,) = fake.asked
        assert [part["type"] for part in seen.parts] == ["text", "image_url", "text", "image_url", "text"]
        assert seen.text == "<1.0 seconds>\n<2.0 seconds>\n[Question] Who painted this?"
        for url, kind, frame in zip(seen.images, ("jpeg", "png"), FRAMES, strict=True):
            head, _, data = url.partition(",")
            assert head == f"data:image/{kind};base64"
            assert base64.b64decode(data) == frame.data
        await asked.solve(BLIND)
        assert fake.asked[1].body["messages"][1]["content"] == BLIND.text
        await asked.aclose()


@pytest.mark.parametrize(
    ("suffix", "route"),
    [
        ("", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/api/v1", "/api/v1/chat/completions"),
        ("/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions"),
    ],
)
async def test_an_endpoint_is_named_by_its_root_or_its_route(suffix: str, route: str) -> None:
    async with FakeSolver() as fake:
        asked = ChatSolver("a", fake.url + suffix, "m", PARAMS)
        await asked.solve(BLIND)
        assert fake.asked[0].path == route
        await asked.aclose()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("<think>Dutch, so\n\nperhaps</think>\n\nVermeer.", "Vermeer."),
        ("perhaps Rembrandt</think>Vermeer.", "Vermeer."),
        ("x" * (ANSWER_CHARS + 5), "x" * (ANSWER_CHARS - 1) + "…"),
    ],
)
async def test_an_answer_is_bounded_and_without_thoughts(said: str, answer: str) -> None:
    async with FakeSolver([said]) as fake:
        asked = solver(fake)
        assert await asked.solve(ASK) == answer
        await asked.aclose()


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply({"error": {"message": "no such key"}}, 401), "solver_refused"),
        (Reply({"error": {"message": "oh"}}, 500), "solver_failed"),
        (Reply({"error": {"message": "slow down"}}, 429), "solver_failed"),
        (Reply(b"<html>"), "solver_failed"),
        (Reply({"choices": []}), "solver_failed"),
        (Reply({"choices": [{"message": {"content": None}}]}), "solver_empty_answer"),
        ("  ", "solver_empty_answer"),
        ("<think>hm</think>", "solver_empty_answer"),
        (Reply(drop=True), "solver_unreachable"),
    ],
)
async def test_every_failure_has_a_code(reply: str | Reply, code: str) -> None:
    async with FakeSolver([reply]) as fake:
        asked = solver(fake)
        with pytest.raises(SolverError) as failed:
            await asked.solve(ASK)
        assert failed.value.code == code
        assert asked.statistics() == {
            "in_flight": 0, "waiting": 0, "cap": 4, "answered": 0, "failed": 1, "cancelled": 0,
        }  # fmt: skip
        await asked.aclose()


async def test_nobody_there() -> None:
    async with FakeSolver() as fake:
        asked = solver(fake)
    with pytest.raises(SolverError) as failed:
        await asked.solve(ASK)
    assert failed.value.code == "solver_unreachable"
    await asked.aclose()


async def test_the_deadline_closes_the_request() -> None:
    clock = VirtualClock()
    async with FakeSolver() as fake:
        fake.hold()
        asked = solver(fake, deadline_s=7.0, clock=clock)
        answer = asyncio.create_task(asked.solve(ASK))
        await fake.until(lambda: len(fake.asked) == 1)
        await clock.advance(6.9)
        assert not answer.done()
        await clock.advance(0.2)
        with pytest.raises(SolverError) as failed:
            await answer
        assert failed.value.code == "solver_timeout"
        await fake.until(lambda: fake.asked[0].gone)
        await asked.aclose()


async def test_a_cancel_closes_the_request() -> None:
    async with FakeSolver() as fake:
        fake.hold()
        asked = solver(fake)
        answer = asyncio.create_task(asked.solve(ASK))
        await fake.until(lambda: len(fake.asked) == 1)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        await fake.until(lambda: fake.asked[0].gone)
        assert asked.statistics()["cancelled"] == 1
        fake.let_go()
        assert await asked.solve(ASK) == "An answer."
        await asked.aclose()


async def test_requests_at_a_time_and_waiting_ones_are_bounded() -> None:
    async with FakeSolver() as fake:
        fake.hold()
        asked = solver(fake, max_in_flight=2)
        answers = [asyncio.create_task(asked.solve(ASK)) for _ in range(4)]
        await fake.until(lambda: len(fake.asked) == 2)
        assert asked.full
        assert asked.statistics() | {"in_flight": 2, "waiting": 2} == asked.statistics()
        with pytest.raises(SolverError) as refused:
            await asked.solve(ASK)
        assert refused.value.code == "solver_busy"
        answers.pop().cancel()  # one that waits gives its place up
        fake.let_go()
        assert await asyncio.gather(*answers) == ["An answer."] * 3
        assert fake.most_at_once == 2
        assert len(fake.asked) == 3
        await settle()
        assert asked.statistics() == {
            "in_flight": 0, "waiting": 0, "cap": 2, "answered": 3, "failed": 1, "cancelled": 1,
        }  # fmt: skip
        await asked.aclose()


def names(chain: SolverChain, ask: SolverAsk) -> list[str]:
    return [each.name for each in chain.order(ask)]


async def test_who_is_asked_rests_on_what_is_declared_and_on_the_order() -> None:
    async with FakeSolver() as fake:
        words, eyes, more = solver(fake, "words"), solver(fake, "eyes", images=True), solver(fake, "more")
        chain = SolverChain([words, eyes, more])
        assert names(chain, ASK) == ["eyes", "words", "more"]
        assert names(chain, BLIND) == ["words", "eyes", "more"]
        # The words of a question decide nothing.
        assert names(chain, SolverAsk("", "look at the picture: what do you see?")) == [
            "words",
            "eyes",
            "more",
        ]
        await chain.aclose()
    with pytest.raises(ValueError, match="at least one"):
        SolverChain([])


async def test_a_solver_without_a_free_place_comes_after_those_that_have_one() -> None:
    async with FakeSolver() as slow, FakeSolver(["from b"]) as quick:
        slow.hold()
        first = solver(slow, "first", max_in_flight=1)
        chain = SolverChain([first, solver(quick, "second")])
        waiting = asyncio.create_task(chain.solve(BLIND))
        await slow.until(lambda: len(slow.asked) == 1)
        assert names(chain, BLIND) == ["second", "first"]
        assert await chain.solve(BLIND) == "from b"
        slow.let_go()
        assert await waiting == "An answer."
        assert {name: s["answered"] for name, s in chain.statistics().items()} == {"first": 1, "second": 1}
        await chain.aclose()


async def test_the_next_is_asked_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    broken = Reply({"error": {"message": "out of memory"}}, 500)
    async with FakeSolver([broken]) as eyes, FakeSolver(["from b"]) as words:
        chain = SolverChain([solver(eyes, "eyes", images=True), solver(words, "words")])
        with caplog.at_level(logging.WARNING):
            assert await chain.solve(ASK) == "from b"
        assert len(eyes.asked[0].images) == 2
        assert words.asked[0].images == []
        assert "eyes" in caplog.text and "out of memory" in caplog.text
        words.script = [Reply(drop=True)]
        with pytest.raises(SolverError) as failed:
            await chain.solve(ASK)
        assert failed.value.code == "solver_unreachable"
        await chain.aclose()
