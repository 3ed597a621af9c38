"""The page's way in: keys, their refusals, lines that break, and what a browser is allowed to load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.page.browser import Visit
from tests.realtime.serving import Scripted, eventually

pytestmark = pytest.mark.page

KEY = "vigil_a-key-of-somebody"
REFUSED = ("status of 401",)
"""A browser notes every refused request in its console."""


async def test_a_key_is_asked_for_checked_kept_in_the_tab_and_used(tmp_path: Path) -> None:
    async with (
        Scripted(tenants={KEY: "somebody"}) as server,
        Visit(server.url, tmp_path, expected=REFUSED) as visit,
    ):
        await visit.reads("#key-ask", "Enter your API key")
        await visit.shot("key")
        await visit.page.fill("#key", "vigil_wrong")
        await visit.click("Continue")
        await visit.reads("#key-why", "not known here")
        await visit.page.fill("#key", KEY)
        await visit.page.press("#key", "Enter")
        await visit.start()
        (session,) = server.registry.sessions()
        assert server.registry.owned("somebody", session.id) is session
        stored = await visit.page.evaluate("[localStorage.length, document.cookie, location.href]")
        assert stored == [0, "", f"{server.url}/"], "nothing outlives the tab"
        await visit.page.reload()
        await visit.is_live()
        assert [s.id for s in server.registry.sessions()] == [session.id]
        await visit.click("Change key")
        await visit.reads("#key-ask", "Enter your API key")


async def test_a_key_that_counts_no_more_is_asked_for_again_and_the_session_goes_on(tmp_path: Path) -> None:
    async with (
        Scripted(tenants={KEY: "somebody"}) as server,
        Visit(server.url, tmp_path, expected=(*REFUSED, "WebSocket")) as visit,
    ):
        await visit.page.fill("#key", KEY)
        await visit.page.press("#key", "Enter")
        await visit.start()
        (session,) = server.registry.sessions()
        keys = server.context.access._credentials
        assert keys is not None
        known, keys._keys = keys._keys, {}
        drop(server)
        await visit.reads("#key-why", "not known here")
        keys._keys = known
        await visit.page.fill("#key", KEY)
        await visit.page.press("#key", "Enter")
        await visit.is_live()
        assert [s.id for s in server.registry.sessions()] == [session.id]


async def test_a_line_that_breaks_is_taken_up_again(tmp_path: Path) -> None:
    async with Scripted() as server, Visit(server.url, tmp_path) as visit:
        await visit.start()
        (session,) = server.registry.sessions()
        drop(server)
        await eventually(lambda: visit.of("session.resume"))
        await visit.is_live()
        assert visit.of("session.resume")[0]["session_id"] == session.id
        await visit.click("End")
        await visit.reads("#notices", "The session has ended.")
        await visit.reads("#start", "Start again")


async def test_a_tab_that_is_doubled_takes_the_session_with_it(tmp_path: Path) -> None:
    """Browsers copy what a tab keeps. The first one says where the session went, and sends no more."""
    async with Scripted() as server, Visit(server.url, tmp_path) as visit:
        await visit.ready()
        await visit.click("Camera")
        await visit.start()
        (session,) = server.registry.sessions()
        async with visit.page.context.expect_page() as opened:
            await visit.page.evaluate("void window.open(location.href)")
        other = await opened.value
        await other.wait_for_selector("#state[data-state=open]")
        await visit.reads("#notices", "The session goes on in another window.")
        assert await visit.page.locator("#state[data-state=over]").count() == 1
        assert [s.id for s in server.registry.sessions()] == [session.id]
        sent = len(visit.sent)
        await other.fill("#ask-text", "Who is there?")
        await other.press("#ask-text", "Enter")
        await eventually(lambda: any(call.method == "tell" for call in server.backend().calls))
        assert len(visit.sent) == sent
        await visit.page.reload()
        await visit.ready()
        assert await visit.page.locator("#state[data-state=idle]").count() == 1, "it does not take it back"


async def test_a_session_that_is_refused_is_told_why(tmp_path: Path) -> None:
    async with (
        FakeEngine() as engine,
        Served(engine, tmp_path, limits={"sessions": 1}) as served,
        Visit(served.url, tmp_path) as visit,
    ):
        await visit.start()
        other = await visit.page.context.new_page()
        await other.goto(served.url)
        await other.wait_for_selector("html[data-ready=yes]", state="attached")
        await other.get_by_role("button", name="Start", exact=True).click()
        await other.locator("#notices .bad").wait_for()
        assert await other.locator("#state").get_attribute("data-state") == "refused"


async def test_the_keyboard_reaches_everything_and_names_it(tmp_path: Path) -> None:
    async with Scripted() as server, Visit(server.url, tmp_path) as visit:
        await visit.ready()
        nameless = await visit.page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, textarea, canvas")]
                 .filter((e) => !e.textContent.trim() && !e.ariaLabel && !e.labels?.length)
                 .map((e) => e.outerHTML)"""
        )
        assert not nameless
        await visit.page.get_by_role("tab", name="Decisions").focus()
        await visit.page.keyboard.press("ArrowRight")
        assert await visit.page.locator("#panel-memory").is_visible()
        await visit.page.keyboard.press("End")
        assert await visit.page.locator("#panel-settings").is_visible()
        await visit.page.keyboard.press("Tab")
        assert await visit.page.evaluate("document.activeElement.id") in ("panel-settings", "camera-pick")


async def test_nothing_inline_and_nothing_from_elsewhere_would_run(tmp_path: Path) -> None:
    expected = ("Content Security Policy", "requires 'Trusted")
    async with Scripted() as server, Visit(server.url, tmp_path, expected=expected) as visit:
        await visit.ready()
        assert await visit.page.evaluate(
            """async () => {
                 const script = document.createElement("script");
                 try { script.textContent = "window.ran = true"; document.body.append(script); } catch {}
                 const fetched = await fetch("http://elsewhere.example/").then(() => true, () => false);
                 let parsed = true;
                 try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch { parsed = false; }
                 return [window.ran === true, fetched, parsed];
               }"""
        ) == [False, False, False]


def drop(server: Scripted) -> None:
    """Break every line, as a network would."""
    for connection in list(server.server.server_state.connections):
        connection.transport.abort()
