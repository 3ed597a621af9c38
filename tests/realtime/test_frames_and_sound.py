"""Pictures with times of their own and sound, appended together to a model that is slow."""

from __future__ import annotations

import base64
from dataclasses import replace
from itertools import pairwise

from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker, pcm16

AUTO = replace(VOICE, auto_response=True, holds_turn_input=False)
APPENDS = 60


def picture(number: int) -> str:
    return base64.b64encode(b"\xff\xd8 " + bytes([number])).decode()


async def test_their_order_is_kept_while_older_pictures_give_way() -> None:
    """Every picture with sound is kept, in place; of pictures alone in a row the newest are."""
    async with (
        Scripted(AUTO, prepare=lambda backend: backend.hold("append")) as server,
        Talker(server.url, opening={}) as t,
    ):
        for number in range(APPENDS):
            alone = number % 20 >= 5
            fields = {} if alone else {"audio": pcm16(100), "is_speech": True}
            await t.send(
                "input_audio_buffer.append",
                video_frames=[picture(number)],
                frame_times_ms=[100 * number],
                **fields,
            )
        (session,) = server.registry.sessions()
        await eventually(lambda: int(str(session.statistics()["mailbox"])) >= 1)
        server.backend().free("append")
        await t.answered()
        units = server.appended()
    times = [frame.media_time_ms for unit in units for frame in unit.frames]
    assert all(before < after for before, after in pairwise(times))
    with_sound = [unit.frames[0].media_time_ms // 100 for unit in units if unit.pcm]
    assert with_sound == [number for number in range(APPENDS) if number % 20 < 5]
    assert times[-1] == 100 * (APPENDS - 1)
    assert server.heard() == 15 * 1600
