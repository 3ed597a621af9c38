"""The check of a full-duplex engine: what fits its profile, what does not; dead, wedged and slow apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from engine_launch import duplex_check as checks
from engine_launch import duplex_trial
from engine_launch.duplex_check import duplex_check
from engine_launch.duplex_socket import realtime_url
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.duplex_trial import probe_duplex
from engine_launch.liveness import Liveness
from engine_launch.selfcheck import SelfCheck, Status
from orchestrator.duplex_spec import duplex_for_family
from prompts.native_loader import native_names
from tests.engine_launch.real_engine import free_port
from tests.engine_launch.scripted_duplex import LISTEN, ScriptedDuplex, audio, error, speaking

Seen = dict[str, tuple[Status, str, str]]


def spec_of(family: str) -> DuplexSpec:
    spec = duplex_for_family(family)
    assert spec is not None
    return spec


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEARTBEAT_S", "MOMENT_S"):
        monkeypatch.setattr(duplex_trial, name, 0.3)
    monkeypatch.setattr(duplex_trial, "LISTEN_MS", 160)
    monkeypatch.setattr(checks, "CLOSE_S", 0.3)


@pytest.fixture
def engine() -> Iterator[ScriptedDuplex]:
    with speaking(ScriptedDuplex(spec_of("minicpmo_4_5"))) as scripted:
        yield scripted


def lines(checked: SelfCheck) -> Seen:
    return {check.name: (check.status, check.detail, check.remedy) for check in checked.checks}


def check(engine: ScriptedDuplex, **options: Any) -> SelfCheck:
    return duplex_check(engine.url, engine.spec, **{"deadline_s": 20.0, **options})


@pytest.mark.parametrize("family", native_names())
def test_an_engine_that_is_what_its_profile_says(family: str) -> None:
    with speaking(ScriptedDuplex(spec_of(family))) as engine:
        checked = check(engine)
    assert checked.ok and checked.answered
    seen = lines(checked)
    speed, _, _ = seen["round trip"]
    assert speed in (Status.OK, Status.WARN), "how fast it is, the machine has a say in"
    assert {status for name, (status, _, _) in seen.items() if name != "round trip"} == {Status.OK}
    for line in ("level", "modalities", "unit", "capabilities", "round trip", "rates", "close"):
        assert line in seen
    assert f"{engine.spec.output_rate_hz} Hz out" in seen["rates"][1]


def test_what_it_is_opened_and_fed_with() -> None:
    with speaking(ScriptedDuplex(spec_of("personaplex"))) as engine:
        check(engine)
    opening = engine.received[0]["session"]
    assert opening["voice"] == "NATF2.pt" and "ref_audio" not in opening
    assert opening["input_audio_format"] == "pcm_f32le" and opening["sample_rate_hz"] == 24000
    append = engine.received[1]
    assert len(append["audio"]) == 4 * 1920 * 4 // 3 and "video_frames" not in append
    assert [event["type"] for event in engine.received][-1] == "session.close"


def test_a_model_that_wants_a_voice_is_shown_one_and_a_looking_one_a_picture(engine: ScriptedDuplex) -> None:
    check(engine)
    assert engine.received[0]["session"]["ref_audio"].startswith("data:audio/wav;base64,")
    assert engine.received[0]["session"]["extra_body"] == {"auto_response": True}
    with speaking(ScriptedDuplex(spec_of("aura"))) as looking:
        check(looking)
    append, commit = looking.received[1:3]
    assert len(append["video_frames"]) == 1
    assert (commit["type"], commit["response_create"]) == ("input_audio_buffer.commit", True)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"implementation_level": "turn_based_duplex"}, "level"),
        ({"chunk_period_ms": 80}, "unit"),
        ({"required_input_modalities": ["audio", "video"]}, "modalities"),
        ({"optional_input_modalities": []}, "modalities"),
    ],
)
def test_what_does_not_fit_fails(engine: ScriptedDuplex, changed: dict[str, Any], line: str) -> None:
    engine.capabilities.update(changed)
    checked = check(engine)
    status, detail, remedy = lines(checked)[line]
    assert status is Status.FAIL and "its profile has" in detail and remedy
    assert checked.answered and not checked.ok


def test_a_newer_engine_that_insists_on_less_fits(engine: ScriptedDuplex) -> None:
    engine.capabilities |= {"required_input_modalities": [], "optional_input_modalities": ["audio", "video"]}
    assert lines(check(engine))["modalities"][0] is Status.OK


def test_other_differences_are_told_and_followed(engine: ScriptedDuplex) -> None:
    engine.capabilities |= {"supports_barge_in": False, "supports_multi_session": False}
    checked = check(engine)
    assert checked.ok
    assert lines(checked)["capabilities"][:2] == (Status.WARN, "supports_barge_in: False for True")
    assert lines(checked)["sessions"][0] is Status.WARN


def test_a_wrong_output_rate_fails(engine: ScriptedDuplex) -> None:
    engine.answers["input_audio_buffer.append"] = lambda call: [audio(16000)]
    status, detail, _ = lines(check(engine))["rates"]
    assert status is Status.FAIL and "16000 Hz out; its profile has 24000 Hz" in detail


def test_a_model_that_listens_gives_no_rate_to_compare(engine: ScriptedDuplex) -> None:
    engine.answers["input_audio_buffer.append"] = lambda call: [LISTEN]
    checked = check(engine)
    assert checked.ok
    assert "listen" in lines(checked)["round trip"][1]
    assert lines(checked)["rates"][0] is Status.WARN


def test_frames_are_sent_until_it_speaks() -> None:
    with speaking(ScriptedDuplex(spec_of("personaplex"))) as engine:
        engine.answers["input_audio_buffer.append"] = lambda call: [audio(24000)] if call.number else [LISTEN]
        checked = check(engine)
    assert lines(checked)["rates"][0] is Status.OK
    assert [e["type"] for e in engine.received].count("input_audio_buffer.append") == 2


def test_a_slow_engine_is_no_dead_one(engine: ScriptedDuplex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex_trial, "LISTEN_MS", 0)

    def later(call: Any) -> list[dict[str, Any]]:
        engine.ended.wait(1.2)
        return [audio(24000)]

    engine.answers["input_audio_buffer.append"] = later
    checked = check(engine)
    status, detail, remedy = lines(checked)["round trip"]
    assert (status, checked.ok) == (Status.WARN, True)
    assert "Slower than real time" in remedy and "answered in" in detail


def test_a_wedged_engine_answers_heartbeats_alone(engine: ScriptedDuplex) -> None:
    engine.answers["input_audio_buffer.append"] = lambda call: []
    checked = check(engine, deadline_s=2.0)
    assert not checked.answered
    assert "it is wedged: answers heartbeats" in lines(checked)["engine"][1]
    assert engine.received[-1]["type"] == "session.close", "its place is given back all the same"


def test_an_engine_that_opens_no_session_is_wedged(engine: ScriptedDuplex) -> None:
    engine.answers["session.update"] = lambda call: []
    assert "it is wedged: no session.created" in lines(check(engine, deadline_s=2.0))["engine"][1]


def test_an_engine_that_dies_under_a_unit(engine: ScriptedDuplex) -> None:
    def die(call: Any) -> list[dict[str, Any]]:
        engine.health = HTTPStatus.SERVICE_UNAVAILABLE
        return [{"type": "session.expired", "reason": "request_cleanup"}]

    engine.answers["input_audio_buffer.append"] = die
    checked = check(engine)
    assert not checked.answered
    assert "it is dead: request_cleanup" in lines(checked)["engine"][1]


def test_nothing_there() -> None:
    checked = duplex_check(f"http://127.0.0.1:{free_port()}", spec_of("aura"))
    assert not checked.answered and "nothing answers" in lines(checked)["reachable"][1]


def test_an_engine_that_is_full_and_one_that_refuses(engine: ScriptedDuplex) -> None:
    engine.answers["session.update"] = lambda call: [error("resource_exhausted")]
    status, detail, remedy = lines(check(engine))["places"]
    assert status is Status.FAIL and "in use" in detail and "max_sessions" in remedy
    assert probe_duplex(engine.url, "m", engine.spec).liveness is Liveness.ALIVE
    engine.answers["session.update"] = lambda call: [{"type": "error", "code": "unsupported", "error": "no"}]
    assert "refused with unsupported: no" in lines(check(engine))["session"][1]


def test_a_unit_that_is_refused(engine: ScriptedDuplex) -> None:
    engine.answers["input_audio_buffer.append"] = lambda call: [error("bad_event")]
    checked = check(engine)
    assert checked.answered and "a unit was refused: bad_event" in lines(checked)["round trip"][1]


def test_a_close_that_nobody_confirms(engine: ScriptedDuplex) -> None:
    engine.answers["session.close"] = lambda call: []
    status, detail, _ = lines(check(engine))["close"]
    assert status is Status.FAIL and "not confirmed" in detail


def test_another_model_than_the_one_named(engine: ScriptedDuplex) -> None:
    checked = check(engine, model="other")
    assert not checked.ok and lines(checked)["model"][2] == "Served models: m."


def test_a_probe_tells_alive_slow_wedged_and_dead(engine: ScriptedDuplex) -> None:
    spec = dataclasses.replace(engine.spec)
    alive = probe_duplex(engine.url, "m", spec, expected_s=60.0)
    assert alive.liveness is Liveness.ALIVE and alive.seconds is not None
    assert probe_duplex(engine.url, "m", spec, expected_s=0.0).liveness is Liveness.SLOW
    engine.answers["input_audio_buffer.append"] = lambda call: []
    assert probe_duplex(engine.url, "m", spec, deadline_s=2.0).liveness is Liveness.WEDGED
    gone = f"http://127.0.0.1:{free_port()}"
    assert probe_duplex(gone, "m", spec).liveness is Liveness.DEAD


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://h:1", "ws://h:1/v1/realtime"),
        ("https://h/v1/", "wss://h/v1/realtime"),
        ("http://h:1/base/v1", "ws://h:1/base/v1/realtime"),
        ("ws://h:1/v1/realtime", "ws://h:1/v1/realtime"),
    ],
)
def test_addresses(given: str, wanted: str) -> None:
    assert realtime_url(given, "a/b") == f"{wanted}?duplex=1&model=a%2Fb&autostart=0"
