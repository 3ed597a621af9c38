"""``vigil voice check`` and the settings of the voice."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridges.circuit import RealClock
from orchestrator import voice_cli
from orchestrator.cli import app
from orchestrator.exits import SetupError
from orchestrator.setting_groups import VoiceGroup
from orchestrator.settings import SettingsError, load_settings
from orchestrator.voice_setup import default_modalities, speaker_of, spoken_options, told_of


def test_a_voice_that_works_says_how_quickly(tmp_path: Path) -> None:
    out = tmp_path / "said.wav"
    done = CliRunner().invoke(app, ["voice", "check", "Hello there.", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "system speaks" in done.output and "real-time factor" in done.output
    with wave.open(str(out)) as said:
        assert said.getframerate() == 24000 and said.getnframes() > 6000


def test_a_recording_that_can_not_be_kept_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["voice", "check", "Hello.", "--out", str(tmp_path / "no" / "said.wav")])
    assert done.exit_code == 2 and "can't write" in done.stderr


def test_a_voice_that_takes_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_cli, "_CHECK_S", 0.0)
    done = CliRunner().invoke(app, ["voice", "check", "Hello."])
    assert done.exit_code == 1 and "it took too long" in done.stderr


def test_a_voice_that_cannot_says_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["voice", "check", "--bridge", "system"])
    assert done.exit_code == 2 and "apt-get install" in done.stderr
    done = CliRunner().invoke(app, ["voice", "check", "--bridge", "openai"])
    assert done.exit_code == 2 and "voice.url" in done.stderr


def test_settings_name_the_voice() -> None:
    assert load_settings().voice.bridge == "auto" and speaker_of(VoiceGroup(), RealClock()) is not None
    assert speaker_of(VoiceGroup(bridge="none"), RealClock()) is None
    voice = load_settings({"voice": {"bridge": "openai", "url": "http://v", "model": "m"}}).voice
    assert speaker_of(voice, RealClock()) is not None
    assert spoken_options(VoiceGroup(policy="latest", lead_s=1.0)).policy == "latest"
    with pytest.raises(SettingsError, match="piper_python"):
        load_settings({"voice": {"bridge": "piper"}})
    with pytest.raises(SetupError, match="there is no"):
        speaker_of(VoiceGroup(bridge="piper", piper_python="/no", piper_model="/no"), RealClock())


def test_a_voice_that_nobody_set_up_is_for_who_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one on the machine there is none, and nothing is wrong."""
    assert default_modalities(VoiceGroup()) == ("text",) and "flite" in told_of(VoiceGroup())
    named = VoiceGroup(bridge="system")
    assert default_modalities(named) == ("text", "audio") and "espeak-ng" in told_of(named)
    server = VoiceGroup(bridge="openai", url="http://v", model="m")
    assert told_of(server) == "openai, with flite and espeak-ng to stand in"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert speaker_of(VoiceGroup(), RealClock()) is None and told_of(VoiceGroup()) == ""
    assert told_of(server) == "openai" and speaker_of(server, RealClock()) is not None
    assert told_of(VoiceGroup(bridge="none")) == ""
