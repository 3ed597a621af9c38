"""The whole service in front of vllm-omni's genuine duplex server: the suites of ``tests/native``, for truth.

The service's time passes faster than the server's; the server's own silence, paced by the second, then comes
rarely, and nothing here waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridges.duplex_client.link import LinkOptions
from engine_launch.client import picture
from orchestrator import native_track
from orchestrator.client import VigilClient
from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.offline.timeline import Recording
from orchestrator.wire.audio import Codec
from prompts.native_loader import native_profile
from tests.fakes.duplex_engine import ScaledClock
from tests.native.checks import wrong_with
from tests.native.serving import INPUTS, SCALE, NativeServed, reference
from tests.peers.conftest import Peers
from tests.peers.peer import Peer

pytestmark = pytest.mark.peer

QUICK: dict[str, Any] = {"think_ms": 2.0, "chunk_ms": 2.0}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is a process that lives in real time: no deadline towards it passes faster."""
    deadlines = dict.fromkeys(("connect_s", "reply_s", "write_s", "close_s", "resume_s"), 60 * SCALE)
    monkeypatch.setattr(native_track, "LinkOptions", partial(LinkOptions, **deadlines))


def served(folder: Path, peer: Peer) -> NativeServed:
    service = NativeServed(
        folder, max_sessions=2, profile=native_profile(peer.family), elsewhere=(peer.url, peer.model)
    )
    service.clock = ScaledClock(SCALE)
    return service


async def played(service: NativeServed, *recordings: Recording, **options: Any) -> Played:
    session = {"ref_audio": reference()}
    wanted = {"session": session, "tail_ms": 2000, "quiet_s": 10.0, "drain_s": 60 * SCALE, **options}
    return await play(list(recordings or INPUTS), PlayOptions(service.url, **wanted), service.clock)


async def until(events: AsyncIterator[Any], kind: str) -> list[Any]:
    """Events up to the first of ``kind``, that one included."""
    seen: list[Any] = []
    async with asyncio.timeout(60):
        async for event in events:
            seen.append(event)
            if event.type == kind:
                return seen
    raise AssertionError(f"no {kind} among {[event.type for event in seen]}")


@pytest.mark.parametrize("policy", ["pattern:LLSE", "reactive:2", "listen"])
async def test_any_policy_is_carried_through_in_order(peer: Peer, tmp_path: Path, policy: str) -> None:
    peer.turn(script=policy, **QUICK)
    async with served(tmp_path, peer) as service:
        result = await played(service)
    assert result.ok, result.against
    for answer in result.record.answers.values():
        assert answer.done and np.isfinite(answer.samples).all()
        if answer.status == "completed":
            assert answer.ledger["played_ms"] == answer.audio_ms, "it was heard out"
    decided = [row["decision"] for row in result.rows if row["kind"] == "unit"]
    assert decided and set(decided) <= {"listen", "speak", None}
    assert bool(result.record.answers) is (policy != "listen")


async def test_each_requested_turn_gets_one_complete_response(peer: Peer, tmp_path: Path) -> None:
    peer.turn(script="pattern:E", **QUICK)
    async with served(tmp_path, peer) as service:
        result = await played(service, asks=True, tail_ms=0)
    assert result.ok and result.drained, result.against
    answers = list(result.record.answers.values())
    assert len(answers) == len(INPUTS)
    assert [why for answer in answers for why in wrong_with(answer)] == []


async def test_engine_sockets_that_break_are_not_heard(peers: Peers, tmp_path: Path) -> None:
    """What is only in flight may be lost; what the client hears is whole, and comes once."""
    peer = peers("minicpmo_4_5")
    peer.turn(script="pattern:LE", **QUICK)
    dropped = 0
    async with served(tmp_path, peer) as service:

        async def break_them() -> None:
            nonlocal dropped
            while True:
                await service.clock.sleep(1.5)
                dropped += await asyncio.to_thread(peer.drop)

        breaking = asyncio.create_task(break_them())
        try:
            result = await played(service)
        finally:
            breaking.cancel()
            await asyncio.gather(breaking, return_exceptions=True)
    assert dropped > 2
    assert result.ok, result.against
    assert result.record.answers
    for answer in result.record.answers.values():
        assert answer.status == "completed" and answer.audio_ms == 1000
        assert answer.ledger["played_ms"] == answer.audio_ms


async def test_a_barge_in_leaves_no_byte_of_the_old_answer(peer: Peer, tmp_path: Path) -> None:
    peer.turn(script="pattern:SE", think_ms=2.0, chunk_ms=150.0)
    speech = b"\x10\x10" * 16000
    opening = {
        "modalities": ["audio", "text"], "ref_audio": reference(), "extra_body": {"auto_response": True},
    }  # fmt: skip
    async with served(tmp_path, peer) as service, VigilClient(service.url, session=opening) as client:
        events = client.events()
        await client.append(pcm=speech)
        first = (await until(events, "response.output_audio.delta"))[-1]
        await client.cancel()
        seen = await until(events, "response.done")
        assert seen[-1].response.status == "cancelled"
        await client.append(pcm=speech)
        seen = await until(events, "response.done")
        assert seen[-1].response.status == "completed"
        old = first.response_id
        said = [event.response_id for event in seen if event.type == "response.output_audio.delta"]
        assert said and old not in said


async def test_frames_of_80_ms_reach_the_model_whole(peers: Peers, tmp_path: Path) -> None:
    peer = peers("personaplex")
    peer.turn(script="pattern:LLLLLSSSSE", **QUICK)
    async with served(tmp_path, peer) as service:
        result = await played(service, INPUTS[1], session={}, rate_hz=24000, codec=Codec.FLOAT32, tail_ms=400)
        assert result.ok, result.against
        assert result.record.answers
        assert {unit["samples"] for unit in peer.latest() if not unit["force_listen"]} == {1920}


async def test_a_looking_model_is_asked_through_vigil(peers: Peers, tmp_path: Path) -> None:
    peer = peers("aura")
    opening = {"modalities": ["audio", "text"]}
    async with served(tmp_path, peer) as service, VigilClient(service.url, session=opening) as client:
        events = client.events()
        for number in range(2):
            await client.append(frames=[picture(number, 64)], pcm=b"\x10\x10" * 8000, is_speech=True)
        await client.send({"type": "input_audio_buffer.commit", "response_create": True})
        seen = await until(events, "response.done")
        assert seen[-1].response.status == "completed"
        assert any(event.type == "response.output_audio.delta" for event in seen)
        (unit,) = peer.latest()
        assert unit["frames"] and unit["samples"] == 16000
