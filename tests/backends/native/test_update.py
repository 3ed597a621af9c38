"""``session.update``: a true barrier, applied on both sides or on neither."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.session.commands import Reconfigure
from orchestrator.session.events import SessionUpdated
from tests.backends.native.harness import DUPLEX, FRAMES, TURN, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import spoken


async def update(rig: Rig, **body: Any) -> None:
    await rig.session.submit(Reconfigure(body, event_id="e-update"))
    await settle()


async def test_only_what_changes_is_forwarded_and_ours_follows() -> None:
    rig = await open_rig(instructions="Be kind.", extra_body={"ref_audio": "data:,", "mine": 1})
    await update(rig, instructions="Be brief.", temperature=0.2, extra_body={"mine": 2})
    assert rig.link.named("update") == [
        {"instructions": "Be brief.", "temperature": 0.2, "extra_body": {"mine": 2}}
    ]
    assert rig.session.config.instructions == "Be brief."
    assert len(rig.of(SessionUpdated)) == 1


async def test_what_is_of_our_layer_alone_is_not_forwarded() -> None:
    rig = await open_rig()
    await update(rig, idle_timeout_s=60, include=["vigil.tick"], metadata={"a": "b"})
    assert rig.link.named("update") == []
    assert rig.session.config.idle_timeout_s == 60


async def test_an_engine_that_refuses_leaves_both_as_they_were() -> None:
    rig = await open_rig(instructions="Be kind.")
    rig.link.fail("update", "instructions_update_unsupported")
    await update(rig, instructions="Be brief.")
    assert rig.codes() == ["instructions_update_unsupported"]
    assert rig.session.config.instructions == "Be kind."
    assert rig.of(SessionUpdated) == []
    await update(rig, temperature=0.1)
    assert rig.link.named("update") == [{"temperature": 0.1}]


async def test_input_that_came_before_is_written_before_it() -> None:
    rig = await open_rig()
    await rig.append(4000)
    await update(rig, temperature=0.1)
    await rig.append(1000)
    assert rig.link.named("update") == []
    await rig.clock.advance(2.1)
    assert [name for name, _ in rig.link.commands[-3:]] == ["append", "append", "update"]
    await rig.clock.advance(2)
    assert rig.link.commands[-1][0] == "append"


@pytest.mark.parametrize(
    ("profile", "body", "code"),
    [
        (DUPLEX, {"model": "other"}, "model_update_unsupported"),
        (DUPLEX, {"ref_audio": "data:,"}, "ref_audio_update_unsupported"),
        (DUPLEX, {"voice": "other"}, "voice_update_after_audio_unsupported"),
        (DUPLEX, {"instructions": "other"}, "instructions_update_unsupported"),
        (DUPLEX, {"extra_body": {"auto_response": False}}, "invalid_duplex_runtime_config"),
        (DUPLEX, {"extra_body": {"secret": 1}}, "invalid_duplex_runtime_config"),
        (FRAMES, {"instructions": "other"}, "persona_update_unsupported"),
        (FRAMES, {"input_audio_format": "pcm16"}, "unsupported_audio_format"),
        (FRAMES, {"turn_detection": {"type": "server_vad"}}, "unsupported_turn_detection"),
        (TURN, {"turn_detection": {"type": "server_vad"}}, "unsupported_turn_detection"),
    ],
)
async def test_what_cannot_change_once_it_was_heard(profile: Any, body: dict[str, Any], code: str) -> None:
    """Case 11, and what the profile rules out before the engine sees it."""
    rig = await open_rig(profile)
    await rig.append(1000)
    await rig.say(*spoken("r", ("hi", 200)))
    await update(rig, **body)
    assert rig.codes() == [code]
    assert rig.of(SessionUpdated) == []
    assert rig.link.named("update") == []


async def test_a_bundled_voice_is_chosen_at_the_opening() -> None:
    rig = await open_rig(FRAMES)
    await update(rig, voice="SECOND.pt")
    assert rig.codes() == ["voice_update_unsupported"]
