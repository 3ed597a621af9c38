"""The wall around each session: what breaks in one is told there, and its neighbours hear nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.session.core import SessionCore
from orchestrator.session.intake import Intake
from tests.fakes.backend import ScriptedBackend
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Talker

JPEG = b"\xff\xd8\xe0rest"
AUTO = {"modalities": ["text"], "extra_body": {"auto_response": True}}


def raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug")


def breaks_outputs(server: Scripted, _: pytest.MonkeyPatch) -> None:
    server.backend(0).break_outputs(ZeroDivisionError("a bug"))


def breaks_append(server: Scripted, _: pytest.MonkeyPatch) -> None:
    server.backend(0).fail("append", ZeroDivisionError("a bug"))


def breaks_core(server: Scripted, patch: pytest.MonkeyPatch) -> None:
    session = server.registry.sessions()[0]
    patch.setattr(session._core, "handle", raising)


def breaks_intake(server: Scripted, patch: pytest.MonkeyPatch) -> None:
    session = server.registry.sessions()[0]
    patch.setattr(session._intake, "commands", raising)


def breaks_log(server: Scripted, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server.logs[0], "append", raising)
    server.backend(0).speak("whose end is recorded")


BREAKS = (breaks_outputs, breaks_append, breaks_core, breaks_intake, breaks_log)


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__)
async def test_one_session_breaks_and_the_others_do_not_notice(
    breaks: Callable[[Scripted, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Scripted() as server,
        Talker(server.url, opening=AUTO) as sick,
        Talker(server.url, opening=AUTO) as well,
    ):
        breaks(server, monkeypatch)
        await sick.show(JPEG, event_id="f")
        await sick.ask("what?")
        assert await sick.closed() == (1000, "internal_error")
        told = [event["error"] for event in sick.of("error")]
        assert [error["type"] for error in told if error["code"] == "internal_error"] == ["server_error"]
        assert {error["code"] for error in told} <= {
            "internal_error",
            "session_closed",
            "runtime_append_failed",
        }
        assert not any("bug" in error["message"] for error in told)
        assert sick.types[-1] == "session.closed"

        await well.show(JPEG)
        await well.answered()
        server.backend(1).speak("still here")
        assert (await well.until("response.output_text.delta"))["delta"] == "still here"
        await well.until("response.done")
        assert well.of("error") == []
        await eventually(lambda: len(server.registry.sessions()) == 1)
        async with Talker(server.url, opening={}) as fresh:
            await fresh.answered()


async def test_a_session_that_cannot_be_built_is_the_opening_sockets_trouble_alone() -> None:
    def broken(backend: ScriptedBackend) -> None:
        if len(server.backends) == 1:
            backend.fail("open", ZeroDivisionError("a bug"))

    async with Scripted(prepare=broken) as server, Talker(server.url, opening={}) as well:
        async with Talker(server.url) as sick:
            await sick.send("session.update", session={})
            code, _ = await sick.closed()
            assert code == 1011
            assert [event["error"]["code"] for event in sick.of("error")] in ([], ["internal_error"])
        await well.answered()
        async with Talker(server.url, opening={}) as fresh:
            await fresh.answered()


def test_what_is_broken_above_exists() -> None:
    """The names that the tests replace."""
    assert callable(SessionCore.handle)
    assert callable(Intake.commands)
