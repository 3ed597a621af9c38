"""``vigil engine check`` against vllm-omni's genuine duplex server."""

from __future__ import annotations

import io
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from engine_launch import cli, duplex_trial
from engine_launch.duplex_check import duplex_check
from engine_launch.duplex_socket import DuplexSocket
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.duplex_trial import probe_duplex
from engine_launch.liveness import Liveness
from engine_launch.profile import load_profile, profile_names
from engine_launch.selfcheck import Check, Status
from orchestrator.duplex_spec import duplex_for_family
from prompts.native_loader import native_profile
from tests.peers.conftest import Peers
from tests.peers.environment import peer_venv
from tests.peers.peer import Peer

pytestmark = pytest.mark.peer

DUPLEX = [name for name in profile_names() if load_profile(name).duplex]


def spec_of(family: str) -> DuplexSpec:
    spec = duplex_for_family(family)
    assert spec is not None
    return spec


def lines(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize("family", ["minicpmo_4_5", "aura", "personaplex"])
def test_the_genuine_server_passes(peers: Peers, family: str) -> None:
    peer = peers(family)
    checked = duplex_check(peer.url, spec_of(family))
    seen = lines(checked.checks)
    assert checked.ok and checked.answered, checked.checks
    for line in ("level", "modalities", "unit", "round trip", "rates", "close"):
        assert seen[line].status is Status.OK, seen[line]
    assert "client_close" in seen["close"].detail
    peer.settle(2.0)


def test_one_unit_reaches_the_model_whole(peers: Peers) -> None:
    for family in ("minicpmo_4_5", "personaplex"):
        peer = peers(family)
        duplex_check(peer.url, spec_of(family))
        units = peer.latest()
        assert {unit["samples"] for unit in units if not unit["final"]} == {
            native_profile(family).audio.unit_samples
        }


def test_the_command_prints_the_table(peer: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The family is known by the model that is served; one that is named instead does not fit."""
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path))
    printed = io.StringIO()
    app = cli.make_app({}.__getitem__, Console(file=printed, width=200), duplex_for_family=duplex_for_family)
    assert CliRunner().invoke(app, ["check", peer.url]).exit_code == 0, printed.getvalue()
    assert "model_native_duplex" in printed.getvalue() and "16000 Hz in" in printed.getvalue()
    wrong = CliRunner().invoke(app, ["check", peer.url, "--family", "aura"])
    assert wrong.exit_code == cli.CHECK_FAILED
    assert "refused with ref_audio_required" in printed.getvalue()


def test_another_family_does_not_fit(peers: Peers) -> None:
    peer = peers("personaplex")
    seen = lines(duplex_check(peer.url, spec_of("nemotron_voicechat")).checks)
    assert "24000 Hz out; its profile has 22050 Hz" in seen["rates"].detail
    seen = lines(duplex_check(peer.url, replace(spec_of("minicpmo_4_5"), reference_audio=False)).checks)
    assert seen["unit"].detail == "80 ms, its profile has 1000 ms"


def test_a_full_engine_is_alive(peer: Peer) -> None:
    spec = spec_of("minicpmo_4_5")
    with DuplexSocket(peer.url, peer.model) as first, DuplexSocket(peer.url, peer.model) as second:
        first.open(spec.opening(peer.model), 10)
        second.open(spec.opening(peer.model), 10)
        assert probe_duplex(peer.url, peer.model, spec).liveness is Liveness.ALIVE
        checked = duplex_check(peer.url, spec)
        assert "in use" in lines(checked.checks)["places"].detail
        assert first.finish(10) == second.finish(10) == "client_close"


def test_slow_and_wedged_are_told_apart(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex_trial, "LISTEN_MS", 0)  # one unit
    spec = spec_of("minicpmo_4_5")
    peer.turn(script="pattern:E", think_ms=1500.0)
    seen = lines(duplex_check(peer.url, spec, deadline_s=60.0).checks)
    assert seen["round trip"].status is Status.WARN and "Slower than real time" in seen["round trip"].remedy
    peer.settle()
    peer.turn(script="pattern:E", think_ms=60_000.0)
    assert probe_duplex(peer.url, peer.model, spec, deadline_s=2.0).liveness is Liveness.WEDGED
    checked = duplex_check(peer.url, spec, deadline_s=2.0)
    assert not checked.answered and "it is wedged" in lines(checked.checks)["engine"].detail


FACTS = """
import json, sys
from vllm_omni.config.pipeline_registry import OMNI_PIPELINES
from vllm_omni.config.stage_config import load_deploy_config, validate_stage_async_chunk_edges
from vllm_omni.engine.duplex.plugin import load_duplex_plugin
from vllm_omni.model_executor.models.qwen3_omni.pipeline import QWEN3_OMNI_PIPELINE

found = {}
for name, (path, sessions) in json.loads(sys.argv[1]).items():
    deploy = load_deploy_config(path)
    pipeline = OMNI_PIPELINES[deploy.pipeline]
    pipeline = QWEN3_OMNI_PIPELINE if callable(pipeline) else pipeline
    validate_stage_async_chunk_edges(pipeline, deploy)
    capabilities = None
    if pipeline.duplex_plugin is not None:
        plugin = load_duplex_plugin(pipeline.duplex_plugin, lambda *_: None)
        capabilities = plugin.capabilities(max_sessions=sessions).as_dict()
    found[name] = {
        "mode": deploy.session_mode,
        "max_sessions": deploy.duplex_session.max_sessions,
        "seqs": [stage.max_num_seqs for stage in deploy.stages],
        "stages": [s.stage_id for s in deploy.stages] == [s.stage_id for s in pipeline.stages],
        "eager": [stage.enforce_eager for stage in deploy.stages],
        "graphs": [(stage.compilation_config or {}).get("cudagraph_mode") for stage in deploy.stages],
        "extras": sorted({key for stage in deploy.stages for key in stage.engine_extras}),
        "capabilities": capabilities,
    }
print(json.dumps(found, default=sorted))
"""
KNOWN_EXTRAS = {
    "dtype", "enable_chunked_prefill", "enable_prefix_caching", "hf_overrides", "interleave_mm_strings",
    "kv_cache_memory_bytes", "limit_mm_per_prompt", "model", "moe_backend", "skip_tokenizer_init",
}  # fmt: skip
"""Engine arguments that the loader passes on as they are: a misspelt key would turn up among them."""

Facts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def facts() -> Facts:
    """What the package itself makes of our deploy files, and what its own plugins advertise."""
    venv = peer_venv()
    asked = {
        name: (str(load_profile(name).deploy_file), native_profile(name).max_sessions) for name in DUPLEX
    }
    done = subprocess.run(
        [str(venv.python), "-c", FACTS, json.dumps(asked)],
        env={**venv.environment(os.environ), "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_TARGET_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: Facts = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_the_genuine_loader_reads_our_deploy_files(facts: Facts) -> None:
    for name, read in facts.items():
        assert read["mode"] == "duplex" and read["stages"], name
        assert set(read["seqs"]) == {read["max_sessions"]} == {native_profile(name).max_sessions}
        assert set(read["extras"]) <= KNOWN_EXTRAS, name
    assert (facts["minicpmo_4_5"]["eager"][1], facts["minicpmo_4_5"]["graphs"][1]) == (False, "PIECEWISE")
    assert facts["personaplex"]["eager"][1] is True


def test_profiles_say_what_the_packages_own_plugins_advertise(facts: Facts) -> None:
    for name, read in facts.items():
        if name == "personaplex":
            assert read["capabilities"] is None, "that one waits for a later release"
            continue
        wanted = {key: _plain(value) for key, value in native_profile(name).capabilities.items()}
        assert {key: _plain(value) for key, value in read["capabilities"].items()} == wanted, name


def _plain(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, list | tuple) else value
