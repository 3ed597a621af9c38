"""Opening: what the engine is told, what is refused before it sees anything, places given back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bridges.duplex_client.link import LinkCode, LinkError
from orchestrator.backends.native.advertised import native_capabilities
from orchestrator.backends.native.rules import body
from orchestrator.session.backend import SessionConfig, TurnDetection
from orchestrator.session.configuration import opened
from orchestrator.wire.audio import AudioFormat, Codec
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, VigilError
from prompts.native import ReferenceAudio
from tests.backends.native.harness import DUPLEX, FRAMES, TURN, VISION, advertised, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import FakeSeats, ScriptedLink

SPOKEN = replace(DUPLEX, reference_audio=ReferenceAudio.REQUIRED)


async def refused(**arguments: Any) -> tuple[VigilError, FakeSeats]:
    seats = FakeSeats()
    with pytest.raises(VigilError) as error:
        await open_rig(seats=seats, **arguments)
    return error.value, seats


async def test_the_engine_is_opened_with_what_the_client_asked_and_the_profile_adds() -> None:
    rig = await open_rig(
        instructions="Be kind.",
        voice="low",
        temperature=0.5,
        max_output_tokens=20,
        extra_body={"ref_audio": "data:audio/wav;base64,AA==", "native_duplex": True, "mine": 2},
        echo={"metadata": {"a": 1}, "prompt": {"id": "p"}},
    )
    body = dict(rig.link.body)
    assert body.pop("extra_body") == {"always": 1, "mine": 2, "auto_response": True}
    assert body == {
        "type": "realtime",
        "model": "served",
        "modalities": ["text", "audio"],
        "instructions": "Be kind.",
        "voice": "low",
        "ref_audio": "data:audio/wav;base64,AA==",
        "input_audio_format": "pcm16",
        "output_audio_format": "pcm16",
        "sample_rate_hz": 16000,
        "audio": {"input": {"sample_rate_hz": 16000}, "output": {"sample_rate_hz": 24000}},
        "temperature": 0.5,
        "max_response_output_tokens": 20,
        "prompt": {"id": "p"},
        "turn_detection": None,
    }
    assert rig.seats.states == ["opened"]


async def test_the_users_opening_words_are_for_the_first_engine_session_only() -> None:
    """One that goes on from what was said before would answer them again."""
    rig = await open_rig(opening_text="Hello!", extra_body={"duplex_initial_user_text": "Hello!"})
    assert rig.link.body["initial_user_text"] == "Hello!"
    assert "duplex_initial_user_text" not in rig.link.body["extra_body"]
    assert "initial_user_text" not in body(DUPLEX, SessionConfig("m", opening_text="Hello!"), "User: Hello!")


async def test_keys_that_only_servers_set_are_refused_by_name() -> None:
    capabilities = native_capabilities(DUPLEX, 2)
    for key in ("secret", "own_thing"):
        with pytest.raises(InvalidRequest) as error:
            opened({"extra_body": {key: 1}}, SessionConfig("m"), capabilities)
        assert error.value.code == "invalid_duplex_runtime_config"
        assert key in error.value.message


async def test_audio_needs_a_reference_voice_where_the_profile_says_so() -> None:
    """Case 13."""
    error, seats = await refused(profile=SPOKEN)
    assert (error.code, seats.seats) == ("ref_audio_required", [])
    rig = await open_rig(SPOKEN, modalities=("text",))
    assert rig.link.body["modalities"] == ["text"]
    await open_rig(SPOKEN, extra_body={"tts_ref_audio": "data:audio/wav;base64,AA=="})


async def test_a_path_is_no_reference_voice() -> None:
    error, _ = await refused(extra_body={"ref_audio_path": "/etc/passwd"})
    assert error.code == "unsupported_ref_audio_path"


@pytest.mark.parametrize("voice", ["../SECOND.pt", "/x/SECOND.pt", "SECOND", "a b.pt", ".pt", "..pt"])
async def test_only_the_bare_name_of_a_bundled_voice_reaches_the_engine(voice: str) -> None:
    error, seats = await refused(profile=FRAMES, voice=voice)
    assert (error.code, error.param, seats.seats) == ("invalid_session_config", "voice", [])


async def test_a_bundled_voice_is_passed_on_and_the_first_is_the_default() -> None:
    assert (await open_rig(FRAMES, voice="SECOND.pt")).link.body["voice"] == "SECOND.pt"
    assert (await open_rig(FRAMES)).link.body["voice"] == "FIRST.pt"


@pytest.mark.parametrize("given", ["file:///etc/passwd", "http://169.254.169.254/", "AA==", {"url": "x"}, 5])
async def test_a_reference_voice_that_points_somewhere_never_reaches_the_engine(given: Any) -> None:
    error, seats = await refused(extra_body={"ref_audio": given})
    assert (error.code, error.param, seats.seats) == ("unsupported_ref_audio_path", "ref_audio", [])


async def test_a_model_with_one_format_refuses_any_other_and_the_detector_it_has_not() -> None:
    error, _ = await refused(profile=FRAMES, input_format=AudioFormat(Codec.PCM16, 24000))
    assert (error.code, error.param) == ("invalid_session_config", "input_audio_format")
    error, _ = await refused(profile=FRAMES, turn_detection=TurnDetection())
    assert (error.code, error.param) == ("invalid_session_config", "turn_detection")
    error, _ = await refused(profile=FRAMES, extra_body={"ref_audio": "data:,"})
    assert error.code == "invalid_duplex_runtime_config"


async def test_a_model_that_answers_turns_refuses_auto_response() -> None:
    error, seats = await refused(profile=TURN, auto_response=True)
    assert (error.code, seats.seats) == ("invalid_duplex_runtime_config", [])


# --- capabilities -------------------------------------------------------------------------------------------


async def test_capabilities_are_the_engines_and_ours_where_they_are_of_our_layer() -> None:
    rig = await open_rig(
        replace(DUPLEX, resume=False),
        told={
            "supports_barge_in": False,
            "supports_session_resume": True,
            "supports_model_internal_state": True,
            "supports_concurrent_turn_requests": True,
            "signal_sources": ["client_event"],
        },
    )
    said = rig.session.view()["capabilities"]
    assert said["supports_barge_in"] is False
    assert said["supports_session_resume"] is False
    assert said["supports_model_internal_state"] is True
    assert said["supports_concurrent_turn_requests"] is True
    assert said["signal_sources"] == ["client_event"]
    assert (said["required_input_modalities"], said["optional_input_modalities"]) == (["audio"], ["video"])
    assert (said["chunk_period_ms"], said["target_barge_in_latency_ms"]) == (1000, 1000)


async def test_a_newer_engine_that_requires_less_offers_more() -> None:
    told = {"required_input_modalities": [], "optional_input_modalities": ["audio", "video"]}
    said = (await open_rig(told=told)).session.view()["capabilities"]
    assert (said["required_input_modalities"], said["optional_input_modalities"]) == ([], ["audio", "video"])


@pytest.mark.parametrize(
    "told",
    [
        {"implementation_level": "turn_based_duplex"},
        {"chunk_period_ms": 80},
        {"required_input_modalities": ["audio", "touch"]},
        {"optional_input_modalities": []},
    ],
)
async def test_another_engine_than_the_profile_describes_is_no_session(told: dict[str, Any]) -> None:
    error, seats = await refused(told=told)
    assert (error.code, error.error_type) == ("runtime_contract_invalid", "server_error")
    assert seats.states == ["failed:runtime_contract_invalid"] * len(seats.seats)


async def test_an_engine_of_another_rate_is_no_session_and_is_closed_again() -> None:
    made: list[ScriptedLink] = []

    def prepare(link: ScriptedLink) -> None:
        link.session = {"audio": {"output": {"sample_rate_hz": 22050}}}
        made.append(link)

    error, _ = await refused(prepare=prepare)
    assert error.code == "runtime_contract_invalid"
    assert all(link.closed for link in made)


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told", "kind"),
    [
        ("resource_exhausted", "resource_exhausted", "rate_limit_error"),
        ("ref_audio_required", "ref_audio_required", "invalid_request_error"),
        (LinkCode.CONNECT_FAILED, "engine_error", "server_error"),
        (LinkCode.TIMEOUT, "timeout", "server_error"),
    ],
)
async def test_what_the_engine_refuses_with_is_what_the_client_is_told(
    code: str, told: str, kind: str
) -> None:
    def prepare(link: ScriptedLink) -> None:
        link.refuse_open = LinkError(code, "no")

    error, seats = await refused(prepare=prepare)
    assert (error.code, error.error_type) == (told, kind)
    assert all(seat.over for seat in seats.seats)


async def test_two_places_take_two_sessions_and_a_closed_one_makes_room() -> None:
    """Case 64, at the engine's door."""
    seats = FakeSeats(limit=2)
    first, _ = await open_rig(seats=seats), await open_rig(seats=seats)
    with pytest.raises(ResourceExhausted) as error:
        await open_rig(seats=seats)
    assert error.value.code == "resource_exhausted"
    await first.session.close("client_close")
    await open_rig(seats=seats)
    assert seats.states == ["freed", "opened", "opened"]


async def test_three_at_once_over_a_slow_engine_are_two() -> None:
    """Case 64: a place is taken before the slow opening begins."""
    seats, made = FakeSeats(limit=2), []

    def prepare(link: ScriptedLink) -> None:
        link.hold("open")
        made.append(link)

    opening = [
        asyncio.create_task(open_rig(seats=seats, prepare=prepare, session_id=f"duplex-{n}"))
        for n in range(3)
    ]
    await settle()
    for link in made:
        link.free("open")
    done = await asyncio.gather(*opening, return_exceptions=True)
    refused = [each for each in done if isinstance(each, ResourceExhausted)]
    assert (len(refused), len(made), seats.states) == (1, 2, ["opened", "opened"])


async def test_an_open_that_is_cancelled_gives_its_place_back() -> None:
    seats, held = FakeSeats(), []

    def prepare(link: ScriptedLink) -> None:
        link.hold("open")
        held.append(link)

    opening = asyncio.create_task(open_rig(seats=seats, prepare=prepare))
    await settle()
    opening.cancel()
    await settle()
    opening.cancel()
    await asyncio.wait({opening})
    assert seats.states == ["lost"]
    # The link is still at it: whoever holds the place closes it, so that the engine keeps no such session.
    close = seats.seats[0].close
    assert close is not None and await close()
    assert held[0].closed


async def test_an_engine_that_does_not_fit_and_does_not_close_keeps_its_place() -> None:
    seats = FakeSeats()

    def prepare(link: ScriptedLink) -> None:
        link.closes = False

    with pytest.raises(VigilError):
        await open_rig(seats=seats, prepare=prepare, told={"chunk_period_ms": 40})
    assert seats.states[0] == "lost"


async def test_what_an_engine_of_that_profile_would_say_fits() -> None:
    for profile in (DUPLEX, VISION, TURN, FRAMES):
        said = advertised(profile)
        rig = await open_rig(profile)
        assert rig.session.view()["capabilities"]["chunk_period_ms"] == said["chunk_period_ms"]
