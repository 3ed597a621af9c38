"""The page in front of a model that watches and writes: decisions, memory, reload, how it looks."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.api.serving import Served
from tests.engine_launch.real_engine import free_port
from tests.fakes.engine import FakeEngine, Seen
from tests.fakes.solver import FakeSolver
from tests.page.browser import Visit
from tests.realtime.serving import eventually

pytestmark = pytest.mark.page


def watches(seen: Seen) -> str:
    return "<response> The sun is moving over the hills." if seen.tick == 2 else "<silence>"


def wonders(seen: Seen) -> str:
    return "<response> Let me look. <delegation> What hills are these?" if seen.tick == 1 else "<silence>"


async def test_a_session_begins_decides_and_remembers(tmp_path: Path) -> None:
    async with (
        FakeEngine(watches) as engine,
        Served(engine, tmp_path) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.ready()
        assert await visit.page.get_by_role("button", name="Microphone").is_disabled(), "it has no ears"
        await visit.click("Camera")
        await visit.click("Start")
        await visit.is_live()
        await visit.ask("Tell me about the sun")
        await visit.reads("#query", "Tell me about the sun")
        await visit.reads("#timeline .row.response", "The sun is moving over the hills.")
        await visit.reads("#said .assistant", "The sun is moving over the hills.")
        await visit.reads("#timeline .row.silence", "Silence")
        assert await visit.page.locator("#timeline img").count() > 0
        await visit.shot("light")
        await visit.page.get_by_role("tab", name="Memory").click()
        await visit.reads("#memory", "Live window")
        await visit.reads("#memory", "Tell me about the sun")
        await visit.shot("memory")
        await visit.page.get_by_role("tab", name="Signals").click()
        await visit.reads("#latency-now", "ms")
        await visit.reads("#reuse-now", "%")
        await visit.page.wait_for_selector("#health dt")
        await visit.shot("signals")
        await visit.page.get_by_role("tab", name="Settings").click()
        await visit.shot("settings")
        assert visit.sent[0]["type"] == "session.update"
        assert "vigil.tick" in visit.sent[0]["session"]["include"]
        frames = [e for e in visit.of("input_audio_buffer.append") if e.get("video_frames")]
        assert frames and not any("audio" in e for e in frames)
        await eventually(lambda: visit.of("session.event_ack"))
        await visit.click("Clear")
        await visit.page.wait_for_selector("#query", state="hidden")
        await visit.click("End")
        await visit.page.wait_for_selector("#state[data-state=over]")


async def test_a_hard_question_is_looked_into(tmp_path: Path) -> None:
    async with (
        FakeSolver(["The hills of home."]) as solver,
        FakeEngine(wonders) as engine,
        Served(engine, tmp_path, solvers=[{"name": "a", "url": solver.url, "model": solver.model}]) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.ready()
        await visit.click("Camera")
        await visit.ask("Where is this?")
        await visit.reads("#timeline .row.delegate", "What hills are these?")
        await visit.reads("#timeline .row.delegate", "The hills of home.")
        await visit.page.locator("#timeline .row.delegate img").wait_for()
        assert await visit.page.locator("#timeline .row.delegate").count() == 1, "one entry, however told"
        await visit.shot("delegation")


async def test_a_reload_comes_back_to_the_same_session(tmp_path: Path) -> None:
    async with (
        FakeEngine(watches) as engine,
        Served(engine, tmp_path) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.ready()
        await visit.click("Camera")
        await visit.click("Start")
        await visit.is_live()
        await visit.ask("Tell me about the sun")
        await visit.reads("#timeline .row.response", "The sun is moving")
        (session,) = served.core.registry.sessions()
        await visit.page.reload()
        await visit.is_live()
        await visit.reads("#said .assistant", "The sun is moving")
        await visit.reads("#timeline .row.response", "The sun is moving")
        await visit.reads("#query", "Tell me about the sun")
        assert [s.id for s in served.core.registry.sessions()] == [session.id]
        assert visit.of("session.resume")[0]["session_id"] == session.id
        seen = len(visit.of("input_audio_buffer.append"))
        await visit.page.wait_for_selector("#view[data-showing=camera]")
        while len(visit.of("input_audio_buffer.append")) == seen:
            await visit.page.wait_for_timeout(50)
        assert await visit.page.locator("#said .assistant").count() == 1, "nothing is told twice"


@pytest.mark.parametrize(
    ("name", "dark", "size"), [("dark", True, (1320, 860)), ("phone", False, (390, 844))]
)
async def test_it_looks_well_in_the_dark_and_on_a_phone(
    tmp_path: Path, name: str, dark: bool, size: tuple[int, int]
) -> None:
    async with (
        FakeEngine(watches) as engine,
        Served(engine, tmp_path) as served,
        Visit(served.url, tmp_path, dark=dark, size=size) as visit,
    ):
        await visit.ready()
        await visit.shot(f"{name}-start")
        await visit.click("Camera")
        await visit.ask("Tell me about the sun")  # which starts it, too
        await visit.is_live()
        await visit.reads("#timeline .row.response", "The sun is moving")
        await visit.reads("#timeline .row.silence", "Silence")
        await visit.shot(name)
        wide = await visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0], "nothing sticks out"


async def test_a_service_that_is_started_anew_is_found_again(tmp_path: Path) -> None:
    port = free_port()

    def serving(engine: FakeEngine) -> Served:
        served = Served(engine, tmp_path)
        served.port = port
        return served

    async with FakeEngine(watches) as engine:
        async with AsyncExitStack() as first:
            served = await first.enter_async_context(serving(engine))
            visit = Visit(served.url, tmp_path, expected=("WebSocket", "ERR_CONNECTION_REFUSED"))
            await visit.__aenter__()
            await visit.ready()
            await visit.click("Camera")
            await visit.start()
            await visit.reads("#timeline .row.silence", "Silence")
            (session,) = served.core.registry.sessions()
        await visit.page.wait_for_selector("#state[data-state=waiting], #state[data-state=resuming]")
        async with serving(engine) as again:
            await visit.is_live()
            (after,) = again.core.registry.sessions()
            assert after.id == session.id
            before = again.core.memory_of(after.id).frames
            await eventually(lambda: again.core.memory_of(after.id).frames > before)
            await visit.__aexit__(None, None, None)
