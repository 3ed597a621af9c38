"""Launch profiles and deploy files of full-duplex engines: they agree with the native profiles."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from engine_launch import profile as profiles
from engine_launch.errors import NoGpu, ProfileError
from engine_launch.launch import up
from engine_launch.profile import Profile, duplex_family, load_profile, profile_names, require_gpus
from orchestrator.duplex_spec import duplex_for_family
from prompts.native_loader import native_profile

DUPLEX = [name for name in profile_names() if load_profile(name).duplex]


def stages(name: str) -> dict[str, Any]:
    read = yaml.safe_load(load_profile(name).deploy_file.read_text())
    assert isinstance(read, dict)
    return read


def test_what_can_be_launched() -> None:
    assert DUPLEX == ["aura", "minicpmo_4_5", "nemotron_voicechat", "personaplex", "qwen3_omni"]


@pytest.mark.parametrize("name", DUPLEX)
def test_every_stage_takes_as_many_requests_as_there_are_sessions(name: str) -> None:
    deploy, native = stages(name), native_profile(name)
    assert deploy["session_mode"] == "duplex"
    assert deploy["duplex_session"]["max_sessions"] == native.max_sessions
    assert {stage["max_num_seqs"] for stage in deploy["stages"]} == {native.max_sessions}
    assert [stage["stage_id"] for stage in deploy["stages"]] == list(range(len(deploy["stages"])))


@pytest.mark.parametrize("name", DUPLEX)
def test_the_horizon_is_what_the_engine_is_started_with(name: str) -> None:
    hearing = 1 if name == "aura" else 0  # there the first stage only writes down what was said
    context = native_profile(name).horizon.context_tokens
    assert stages(name)["stages"][hearing]["max_model_len"] == context


@pytest.mark.parametrize("name", DUPLEX)
def test_stages_share_no_more_of_a_card_than_there_is(name: str) -> None:
    share: dict[str, float] = {}
    for stage in stages(name)["stages"]:
        share[stage["devices"]] = share.get(stage["devices"], 0.0) + stage["gpu_memory_utilization"]
    assert max(share.values()) <= 0.95
    assert len(share) == load_profile(name).gpus


def test_a_connector_that_a_stage_names_is_there() -> None:
    for name in DUPLEX:
        deploy = stages(name)
        for stage in deploy["stages"]:
            named = {**stage.get("input_connectors", {}), **stage.get("output_connectors", {})}
            assert set(named.values()) <= set(deploy["connectors"]), (name, stage["stage_id"])


def test_the_stages_that_graphs_break() -> None:
    talker = stages("minicpmo_4_5")["stages"][1]
    assert talker["compilation_config"] == {"cudagraph_mode": "PIECEWISE"}
    assert talker["enforce_eager"] is False
    assert stages("personaplex")["stages"][1]["enforce_eager"] is True


@pytest.mark.parametrize("name", ["minicpmo_4_5", "personaplex", "nemotron_voicechat"])
def test_the_engine_warms_itself_up_before_it_lets_anybody_in(name: str) -> None:
    assert stages(name)["duplex_session"]["warmup_frames"] > 0


@pytest.mark.parametrize("sizes", [[], [23.6], [79.6]])
def test_too_few_gpus_are_said_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, sizes: list[float]
) -> None:
    monkeypatch.setattr(profiles, "gpus_gib", lambda: sizes)
    with pytest.raises(NoGpu, match="2 NVIDIA GPUs of 75 GiB") as told:
        up(load_profile("qwen3_omni"), duplex=duplex_for_family("qwen3_omni"))
    assert "vigil engine check URL --family qwen3_omni" in told.value.remedy
    assert ("here is none" in told.value.message) is not bool(sizes)


def test_gpus_that_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "gpus_gib", lambda: [79.6, 79.6])
    for name in DUPLEX:
        require_gpus(load_profile(name))


def test_an_engine_of_no_known_family_is_not_started() -> None:
    with pytest.raises(ProfileError, match="no native profile"):
        up(load_profile("aura"), duplex=duplex_for_family("joyvl"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deploy": "nowhere.yaml"}, "no deploy file"),
        ({"engine": "gpu"}, "deploy goes with the engine omni"),
        ({"family": None}, "has a family, and no image_cache"),
        ({"image_cache": {"kind": "lru", "mib": 8}}, "has a family, and no image_cache"),
    ],
)
def test_what_a_full_duplex_profile_can_not_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        load_profile("aura").changed(**changes)


def test_a_family_is_known_by_the_model_that_is_served() -> None:
    assert duplex_family(["minicpm-o"]) == "minicpmo_4_5"
    assert duplex_family(["nvidia/personaplex-7b-v1"]) == "personaplex"
    assert duplex_family(["standin"]) is None


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    from engine_launch.launch import _command
    from engine_launch.venv import EngineVenv

    profile: Profile = load_profile("minicpmo_4_5")
    venv = EngineVenv(Path("/engine/bin/python"), "0.30.0", False, "omni")
    command = _command(venv, profile, "weights", "127.0.0.1", 8000, "none", 0)
    assert command[:6] == [
        "/engine/bin/python",
        "-m",
        "vllm_omni.entrypoints.cli.main",
        "serve",
        "weights",
        "--omni",
    ]
    assert command[command.index("--deploy-config") + 1] == str(profile.deploy_file)
    assert command[command.index("--served-model-name") + 1] == "minicpm-o"
    assert "--mm-processor-cache-type" not in command and "--trust-remote-code" in command
