"""The link over a real socket: what goes in reaches the model, what the model says comes out."""

from __future__ import annotations

import pytest

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import (
    EngineFault,
    EngineUnit,
    InputCommitted,
    LinkEnded,
    LinkError,
    LinkOptions,
    Listening,
    ResponseCreated,
    ResponseDone,
    Speaking,
    ToolCall,
)
from tests.bridges.duplex_client.linked import SESSION, linked, unit
from tests.fakes.duplex_engine import (
    AURA_LIKE,
    MINICPM_LIKE,
    NEMOTRON_LIKE,
    PERSONAPLEX_LIKE,
    QWEN_OMNI_LIKE,
    Act,
    DuplexEngine,
    EngineProfile,
    Faults,
    Kind,
)
from tests.fakes.pictures import jpeg

AUTO = {"extra_body": {"auto_response": True}}
TURN = {"modalities": ["text", "audio"], "ref_audio": "data:,"}


async def test_a_conversation() -> None:
    async with DuplexEngine("pattern:LLSE", time_scale=100) as engine, linked(engine) as one:
        for number in range(4):
            await one.link.append(unit(number))
        await one.until(lambda: one.of(ResponseDone))
        (session,) = engine.sessions
        assert [u.samples for u in session.units[:4]] == [16000] * 4
        assert [u.end_ms for u in session.units[:4]] == [1000, 2000, 3000, 4000]
        assert len(one.of(Listening)) == 2
        (created,), (done,) = one.of(ResponseCreated), one.of(ResponseDone)
        assert created.response_id == done.response_id == session.responses[0].id
        assert one.of(Speaking) and done.status == "completed"
        assert one.text == session.responses[0].text
        assert len(one.pcm) == 2 * session.responses[0].pcm.size
        await one.link.playback(done.response_id, 1500, 1400)
        await engine.until(lambda: session.acks)
        assert session.acks == [{"response_id": done.response_id, "played_ms": 1500, "committed_ms": 1400}]
        assert await one.link.close("done")
        assert session.closed == "done"
    assert one.events[-1] == LinkEnded("done", True)


async def test_what_the_engine_has_is_acknowledged() -> None:
    async with DuplexEngine("pattern:E", time_scale=100) as engine, linked(engine) as one:
        for number in range(20):
            await one.link.append(unit(number))
        await one.until(lambda: len(one.of(ResponseDone)) == 20)
        (session,) = engine.sessions
        await engine.until(lambda: session.channel.journaled == 0)
        acks = session.commands("session.event_ack")
        assert len(acks) < session.channel.seq / 4


@pytest.mark.parametrize(
    ("profile", "session", "piece"),
    [
        (MINICPM_LIKE, SESSION, unit(0)),
        (
            PERSONAPLEX_LIKE,
            {"input_audio_format": "pcm_f32le", "sample_rate_hz": 24000, **AUTO},
            EngineUnit(b"\0\0\0\x3f" * 1920, format="pcm_f32le", rate_hz=24000, duration_ms=80, end_ms=80),
        ),
        (
            NEMOTRON_LIKE,
            AUTO,
            EngineUnit(b"\0\x10" * 1280, duration_ms=80, end_ms=80),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
async def test_each_kind_of_engine(
    profile: EngineProfile, session: dict[str, object], piece: EngineUnit
) -> None:
    script = "pattern:E"
    async with DuplexEngine(script, profile, time_scale=100) as engine, linked(engine, opening=False) as one:
        opened = await one.link.open(session)
        assert opened.resumable == profile.resume
        assert opened.capabilities == profile.capabilities(engine.max_sessions)
        await one.link.append(piece)
        await one.until(lambda: one.of(ResponseDone))
        (seen,) = engine.sessions
        assert seen.units[0].samples == profile.unit_samples
        assert one.pcm


@pytest.mark.parametrize("profile", [AURA_LIKE, QWEN_OMNI_LIKE], ids=lambda profile: profile.name)
async def test_turns(profile: EngineProfile) -> None:
    async with DuplexEngine("pattern:E", profile, time_scale=100) as engine, linked(engine, TURN) as one:
        frames = (jpeg(1),) if "video" in profile.required else ()
        for number in range(3):
            await one.link.append(unit(number, frames=frames))
        await one.link.commit(create_response=True)
        await one.until(lambda: one.of(ResponseDone))
        assert one.of(InputCommitted)
        (session,) = engine.sessions
        (got,) = session.units
        assert got.samples == 48000 and got.creates and len(got.frames) == len(frames)


async def test_a_commit_first_and_a_response_later() -> None:
    async with DuplexEngine("pattern:E", time_scale=100) as engine, linked(engine, TURN) as one:
        await one.link.append(unit(0))
        await one.link.commit(create_response=False)
        await one.link.create_response({})
        await one.until(lambda: one.of(ResponseDone))
        with pytest.raises(LinkError) as refused:
            await one.link.create_response({})
        assert refused.value.code == "response_create_without_input"


async def test_refusals_reach_their_caller() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        with pytest.raises(LinkError) as refused:
            await one.link.commit(create_response=False)
        assert refused.value.code == "input_audio_buffer_empty"
        with pytest.raises(LinkError) as refused:
            await one.link.update({"model": "other"})
        assert refused.value.code == "model_update_unsupported"
        await one.link.clear()
        await one.link.add_item({"type": "message", "role": "user", "content": []})
        updated = await one.link.update({"instructions": "be brief"})
        assert updated["instructions"] == "be brief"
        await one.link.cancel(None)


async def test_a_cancel() -> None:
    """``leak_on_cancel``: the response speaks on until the engine has carried the cancel out."""
    faults = Faults(chunk_ms=50, cancel_ms=100, leak_on_cancel=True, late_after_cancel=3)
    async with DuplexEngine("pattern:S", faults=faults, time_scale=10) as engine, linked(engine) as one:
        await one.link.append(unit(0))
        await one.until(lambda: one.pcm)
        (created,) = one.of(ResponseCreated)
        await one.link.cancel(created.response_id)
        await one.until(lambda: one.of(ResponseDone))
        (done,) = one.of(ResponseDone)
        assert (done.status, done.reason) == ("cancelled", "client_cancelled")
        heard = len(one.pcm)
        await one.link.update({})
        assert len(one.pcm) == heard
        assert one.link.statistics()["events_late"] == 3


async def test_nonsense_from_the_engine_is_told_and_survived() -> None:
    async with DuplexEngine("listen", time_scale=100) as engine, linked(engine) as one:
        for nonsense in ("{", "[]", '{"type": "response.created"}', '{"code": "odd", "error": "flat"}'):
            engine.send_raw(nonsense)
        engine.send_raw('{"type": "error", "code": "odd", "error": "flat"}')
        await one.until(lambda: len(one.of(EngineFault)) == 5)
        assert [fault.code for fault in one.of(EngineFault)] == ["bad_engine_event"] * 4 + ["odd"]
        await one.link.append(unit(0))
        await one.until(lambda: one.of(Listening))


async def test_an_append_that_the_engine_refuses() -> None:
    async with DuplexEngine("pattern:AL", time_scale=100) as engine, linked(engine) as one:
        refused = await one.link.append(unit(0))
        await one.until(lambda: one.of(EngineFault))
        (fault,) = one.of(EngineFault)
        assert (fault.code, fault.event_id) == ("runtime_append_failed", refused)
        await one.link.append(unit(1))
        await one.until(lambda: one.of(Listening))


async def test_a_tool_call() -> None:
    act = Act(Kind.TOOL, tool="look", arguments='{"at": 1}')
    async with DuplexEngine([act], time_scale=100) as engine, linked(engine) as one:
        await one.link.append(unit(0))
        await one.until(lambda: one.of(ToolCall))
        assert one.of(ToolCall) == [ToolCall("call_1", "look", '{"at": 1}')]
        assert not one.of(ResponseCreated)


async def test_an_engine_that_is_full() -> None:
    full = DuplexEngine(max_sessions=1)
    async with full as engine, linked(engine), linked(engine, opening=False) as second:
        with pytest.raises(LinkError) as refused:
            await second.link.open(SESSION)
        assert (refused.value.code, refused.value.retryable) == ("resource_exhausted", True)
        await second.until(lambda: second.events)
        assert second.events == [LinkEnded("resource_exhausted", True)]
        assert await second.link.close("x")


async def test_nobody_listens() -> None:
    async with DuplexEngine() as engine:
        url = engine.url
    link = DuplexLink(LinkOptions(url, "m"))
    with pytest.raises(LinkError) as refused:
        await link.open(SESSION)
    assert refused.value.code == "connect_failed"
    assert await link.close("x")
    assert [event async for event in link.events()] == [LinkEnded("connect_failed", True)]


async def test_a_key_is_sent() -> None:
    async with DuplexEngine(api_key="secret") as engine:
        async with linked(engine, api_key="secret"):
            pass
        async with linked(engine, opening=False) as one:
            with pytest.raises(LinkError) as refused:
                await one.link.open(SESSION)
            assert refused.value.code == "connect_failed" and "401" in refused.value.message


async def test_a_link_that_was_never_opened() -> None:
    link = DuplexLink(LinkOptions("ws://h", "m"))
    with pytest.raises(LinkError):
        await link.append(unit(0))
    assert await link.close("x")
    with pytest.raises(LinkError):
        await link.open(SESSION)


async def test_a_link_opens_once() -> None:
    async with DuplexEngine() as engine, linked(engine) as one:
        with pytest.raises(LinkError):
            await one.link.open(SESSION)
