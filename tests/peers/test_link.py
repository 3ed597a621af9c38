"""The link to a full-duplex engine, against the scripted engine and against the genuine server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from bridges.duplex_client.link import (
    AudioChunk,
    EngineFault,
    InputCommitted,
    LinkEnded,
    LinkError,
    LinkLost,
    LinkResumed,
    Listening,
    ResponseCreated,
    ResponseDone,
    SpokenText,
    StageMetrics,
)
from orchestrator.backends.native.counted import EngineCount
from prompts.native_loader import native_profile
from tests.peers.conftest import Peers
from tests.peers.stand import Genuine, Relay, Stand, line, scripted

FAMILY = "minicpmo_4_5"
Stands = Callable[[str], Awaitable[Stand]]


@pytest.fixture(params=["scripted", pytest.param("genuine", marks=pytest.mark.peer)])
async def stands(request: pytest.FixtureRequest) -> AsyncIterator[Stands]:
    """``await stands(family)``: an engine of it."""
    async with AsyncExitStack() as stack:

        async def start(family: str) -> Stand:
            if request.param == "genuine":
                peers: Peers = request.getfixturevalue("peers")
                return Genuine(peers(family))
            return await stack.enter_async_context(scripted(family))

        yield start


@pytest.fixture
async def stand(stands: Stands) -> Stand:
    return await stands(FAMILY)


async def freed(stand: Stand, left: int = 0) -> None:
    async with asyncio.timeout(60):
        while await stand.sessions() > left:  # noqa: ASYNC110 - the genuine server is another process
            await asyncio.sleep(0.05)


async def reached(stand: Stand, session_id: str, units: int) -> None:
    """Until the model got that many units: what is only written when a socket breaks may be lost with it."""
    async with asyncio.timeout(60):
        while len(await stand.heard(session_id)) < units:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def samples(chunks: list[AudioChunk]) -> list[int]:
    pcm = b"".join(chunk.pcm for chunk in chunks)
    return list(struct.unpack(f"<{len(pcm) // 2}h", pcm))


async def test_open_tells_what_the_profile_expects(stand: Stand) -> None:
    async with line(stand) as one:
        opened = await one.open()
        assert opened.session_id.startswith("duplex-") and opened.resumable
        wanted = dict(native_profile(FAMILY).capabilities)
        found = {name: opened.capabilities.get(name) for name in wanted}
        assert found == wanted


async def test_a_unit_is_listened_to(stand: Stand) -> None:
    await stand.script("pattern:L")
    async with line(stand) as one:
        opened = await one.open()
        await one.say()
        heard = await one.until(Listening)
        assert heard.response_id is None and heard.model_listen
        assert not one.of(ResponseCreated)
        assert await stand.heard(opened.session_id) == [(16000, "L")]


async def test_a_unit_is_answered_with_speech_and_its_words(stand: Stand) -> None:
    await stand.script("pattern:E")
    async with line(stand) as one:
        await one.open()
        await one.say()
        done = await one.until(ResponseDone)
        chunks = one.of(AudioChunk)
        created = one.of(ResponseCreated)
        assert [event.response_id for event in created] == [done.response_id]
        assert done.status == "completed"
        assert {chunk.rate_hz for chunk in chunks} == {24000} and len(chunks) > 1
        said = samples(chunks)
        assert len(said) == 24000 and max(said) > 1000
        assert "".join(text.text for text in one.of(SpokenText)).strip()
        marks = [chunk.marks for chunk in chunks if chunk.marks]
        assert all(now >= before for before, now in pairwise(marks))


async def test_its_figures_tell_how_full_the_context_is(stand: Stand) -> None:
    """Each unit adds what it takes and what was said to it, within a response as well."""
    await stand.script("pattern:LLELEL")
    count = EngineCount(native_profile(FAMILY).horizon.counted)
    async with line(stand) as one:
        await one.open()
        for letter in "LLELEL":
            await one.say()
            await one.until(ResponseDone if letter == "E" else Listening)
    told = [tokens for each in one.of(StageMetrics) if (tokens := count.take(each)) is not None]
    assert len(told) == 6
    assert all(10 <= now - before <= 60 for before, now in pairwise(told))


async def test_units_keep_their_order_and_number(stand: Stand) -> None:
    await stand.script("pattern:LLE")
    async with line(stand) as one:
        opened = await one.open()
        ids = await one.say(3)
        await one.until(ResponseDone)
        assert len(set(ids)) == 3
        assert [letter for _, letter in await stand.heard(opened.session_id)][:3] == ["L", "L", "E"]


async def test_a_cancelled_response_says_nothing_more(stand: Stand) -> None:
    await stand.script("pattern:SE", chunk_ms=100.0)
    async with line(stand) as one:
        await one.open()
        await one.say()
        first = await one.until(AudioChunk)
        await one.link.cancel(first.response_id)
        done = await one.until(ResponseDone)
        assert (done.response_id, done.status) == (first.response_id, "cancelled")
        before = len(one.of(AudioChunk))
        await one.say()
        fresh = await one.until(ResponseCreated)
        assert fresh.response_id != first.response_id
        await one.until(ResponseDone)
        late = [chunk for chunk in one.of(AudioChunk)[before:] if chunk.response_id == first.response_id]
        assert not late
        await one.link.cancel(fresh.response_id)  # it is over: no error


async def test_a_turn_is_answered_when_it_is_committed(stand: Stand) -> None:
    await stand.script("pattern:E")
    async with line(stand) as one:
        opened = await one.open(auto=False)
        await one.link.append(one.unit(samples=8000))
        await one.link.commit(create_response=True)
        done = await one.until(ResponseDone)
        assert done.status == "completed" and len(one.of(InputCommitted)) == 1
        assert (await stand.heard(opened.session_id))[0][1] == "E"


async def test_a_dropped_socket_is_taken_up_again_and_nothing_comes_twice(stand: Stand) -> None:
    await stand.script("pattern:E", chunk_ms=150.0)
    async with line(stand) as one:
        opened = await one.open()
        await one.say()
        await one.until(AudioChunk)
        await stand.drop()
        await one.until(LinkLost)
        await one.until(LinkResumed)
        done = await one.until(ResponseDone)
        assert done.status == "completed"
        assert len(samples(one.of(AudioChunk))) == 24000
        assert len(one.of(ResponseCreated)) == len(one.of(ResponseDone)) == 1
        assert (await stand.heard(opened.session_id))[0][1] == "E"


async def test_output_made_while_the_socket_was_gone_is_replayed(stand: Stand) -> None:
    await stand.script("pattern:E", think_ms=300.0)
    async with line(stand) as one:
        opened = await one.open()
        await one.say()
        await reached(stand, opened.session_id, 1)
        await stand.drop()
        await one.until(LinkResumed)
        await one.until(ResponseDone)
        assert len(samples(one.of(AudioChunk))) == 24000


async def test_a_session_that_nobody_took_up_again_in_time_is_over(stand: Stand) -> None:
    async with Relay(stand.url) as way, line(stand, url=way.url) as one:
        await one.open()
        way.cut()
        await one.until(LinkLost)
        await freed(stand)  # its grace is over
        way.mend()
        ended = await one.until(LinkEnded)
        assert ended.confirmed and not one.of(LinkResumed)


async def test_a_stage_that_fails_ends_the_session_with_the_engines_word(stand: Stand) -> None:
    await stand.script("pattern:F")
    async with line(stand) as one:
        await one.open()
        await one.say()
        ended = await one.until(LinkEnded)
        assert ended.confirmed and ended.reason == "request_cleanup"
        assert [fault.code for fault in one.of(EngineFault)] == ["runtime_data_plane_stream_failed"]
        with pytest.raises(LinkError):
            await one.say()
        await freed(stand)


async def test_a_close_is_confirmed_and_frees_the_place(stand: Stand) -> None:
    async with line(stand) as first, line(stand) as second, line(stand) as third:
        await first.open()
        await second.open()
        with pytest.raises(LinkError) as refused:
            await third.open()
        assert refused.value.code == "resource_exhausted"
        assert await first.link.close("client_close")
        assert (await first.until(LinkEnded)).confirmed
        await freed(stand, 1)
        async with line(stand) as fourth:
            await fourth.open()
            assert await stand.sessions() == 2


async def test_an_update_that_is_refused_changes_nothing(stand: Stand) -> None:
    await stand.script("pattern:E")
    async with line(stand) as one:
        await one.open()
        with pytest.raises(LinkError) as refused:
            await one.link.update({"model": "another"})
        assert refused.value.code == "model_update_unsupported"
        updated = await one.link.update({"temperature": 0.3})
        assert updated["temperature"] == 0.3
        await one.say()
        assert (await one.until(ResponseDone)).status == "completed"


async def test_cleared_input_is_never_heard(stand: Stand) -> None:
    await stand.script("pattern:L")
    async with line(stand) as one:
        opened = await one.open()
        await one.link.append(one.unit(samples=8000))
        await one.link.clear()
        await one.say()
        await one.until(Listening)
        assert [count for count, _ in await stand.heard(opened.session_id)] == [16000]


async def test_playback_is_told_as_it_goes(stand: Stand) -> None:
    await stand.script("pattern:E")
    async with line(stand) as one:
        await one.open()
        await one.say()
        chunk = await one.until(AudioChunk)
        await one.link.playback(chunk.response_id, 100, 100)
        done = await one.until(ResponseDone)
        await one.link.playback(done.response_id, 1000, 1000)
        await one.link.clear()  # answered after them: neither was refused
        assert not one.of(EngineFault)


async def test_audio_without_a_voice_to_show_is_refused(stand: Stand) -> None:
    async with line(stand) as one:
        with pytest.raises(LinkError) as refused:
            await one.open(ref_audio=None)
        assert refused.value.code == "ref_audio_required"


async def test_keys_of_the_servers_own_are_refused(stand: Stand) -> None:
    async with line(stand) as one:
        opening = one.spec.opening(one.model)
        extra = {**opening["extra_body"], "duplex_stage_max_tokens": {"0": 1}}
        with pytest.raises(LinkError) as refused:
            await one.link.open({**opening, "extra_body": extra})
        assert refused.value.code == "invalid_duplex_runtime_config"
        assert "duplex_stage_max_tokens" in refused.value.message


async def test_frames_of_80_ms_are_answered_in_step(stands: Stands) -> None:
    family = "personaplex"
    stand = await stands(family)
    await stand.script("pattern:LSSSE")
    async with line(stand, family) as one:
        opened = await one.open()
        assert not opened.resumable and opened.capabilities["chunk_period_ms"] == 80
        await one.say(5)
        done = await one.until(ResponseDone)
        chunks = one.of(AudioChunk)
        assert done.status == "completed" and {chunk.rate_hz for chunk in chunks} == {24000}
        heard = await stand.heard(opened.session_id)
        assert heard[:5] == [(1920, letter) for letter in "LSSSE"]


async def test_a_session_that_can_not_be_resumed_ends_with_its_socket(stands: Stands) -> None:
    stand = await stands("personaplex")
    async with line(stand, "personaplex") as one:
        await one.open()
        await stand.drop()
        ended = await one.until(LinkEnded)
        assert not ended.confirmed and not one.of(LinkResumed)
        await freed(stand)


async def test_a_looking_model_answers_what_it_saw_and_heard(stands: Stands) -> None:
    stand = await stands("aura")
    await stand.script("pattern:EL")
    async with line(stand, "aura") as one:
        opened = await one.open(auto=False)
        for _ in range(2):
            await one.link.append(one.unit(frames=1))
            await one.link.commit(create_response=True)
            await one.until(ResponseDone)
        first, second = (done.status for done in one.of(ResponseDone))
        assert first == second == "completed"
        assert len({chunk.response_id for chunk in one.of(AudioChunk)}) == 1
        assert [letter for _, letter in await stand.heard(opened.session_id)] == ["E", "L"]


async def test_a_looking_model_takes_no_sound_without_a_picture(stands: Stands) -> None:
    stand = await stands("aura")
    async with line(stand, "aura") as one:
        await one.open(auto=False)
        event_id = (await one.say())[0]
        fault = await one.until(EngineFault)
        assert (fault.code, fault.event_id) in {
            ("invalid_input_modality", event_id),
            ("invalid_input_modality", None),
        }
