"""Case 56 over real sockets: a model that never ends, and the silence that Vigil feeds it meanwhile.

Contract: in auto mode it stops after 64 units, in turn mode after 8; that is told as ``response.listen`` with
the reason, and only then is the response done. The units' pace is told in ``tests/backends/native``.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.offline.timeline import Recording
from prompts.native import SilenceContinuation
from prompts.native_loader import native_profile
from tests.fakes.duplex_engine import MINICPM_LIKE, Act, Kind, Script
from tests.native.serving import FAMILY, NativeServed, reference, spoken
from tests.realtime.talker import Talker

pytestmark = pytest.mark.timeout(300)

ENDLESS: Script = [Act(Kind.SPEAK, text="and ", audio_ms=300)]
ASKED: Recording = spoken("asked.wav", 1000, pitch_hz=150, words_per_s=3.0)
PROFILE = replace(native_profile(FAMILY), silence_continuation=SilenceContinuation.VIGIL)


@pytest.mark.parametrize(("auto", "limit"), [(True, 64), (False, 8)], ids=["auto", "turns"])
async def test_case_56_silence_goes_on_for_so_long(tmp_path: Path, auto: bool, limit: int) -> None:
    like = replace(MINICPM_LIKE, silence_continuation=False)
    pcm = base64.b64encode((ASKED.samples * 32767).astype("<i2").tobytes()).decode()
    opening = {"ref_audio": reference(), "extra_body": {"auto_response": auto}}
    async with (
        NativeServed(tmp_path, ENDLESS, like=like, profile=PROFILE) as served,
        Talker(served.url, opening=opening) as t,
    ):
        await t.send("input_audio_buffer.append", audio=pcm, sample_rate_hz=16000)
        if not auto:
            await t.send("input_audio_buffer.commit")
            await t.send("response.create")
        created = await t.until("response.created")
        done = await t.until("response.done")
        assert done["response"]["id"] == created["response"]["id"]
        listens = [
            e for e in t.of("response.listen") if e["response"]["metadata"]["reason"] != "model_listen"
        ]
        assert [e["response"]["metadata"]["reason"] for e in listens] == ["continuation_limit"]
        assert t.seen.index(listens[0]) < t.seen.index(done)
        (engine,) = served.engines
        (session,) = engine.sessions
        appended = [e for e in session.received if e["type"] == "input_audio_buffer.append"]
        assert len(appended) == 1 + limit
