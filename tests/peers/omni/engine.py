"""The genuine full-duplex engine with scripted stages: three methods are replaced, no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from families import Family
from script import Knobs
from stages import ScriptedModel
from vllm_omni.engine.duplex.vad import SileroVADBackendProvider
from vllm_omni.engine.duplex_omni_engine import DuplexOmniEngine
from vllm_omni.engine.stage_pool import StagePool
from vllm_omni.engine.stage_runtime import StageRuntimeInfo
from vllm_omni.entrypoints.duplex.audio_encoding import encode_audio
from vllm_omni.entrypoints.duplex_omni import DuplexOmni


class ScriptedEngine(DuplexOmniEngine):
    """Set ``family`` and ``knobs`` on the class before one is made: the package makes it."""

    family: Family
    knobs: Knobs
    model_below: ScriptedModel

    def _validate_deployment(self) -> None:
        if self.family.plugin is not None:
            self.pipeline_config = replace(self.pipeline_config, duplex_plugin=self.family.plugin)
        super()._validate_deployment()

    def _resolve_stage_configs(self, model: str, kwargs: dict[str, Any], *, trust_remote_code: bool) -> Any:
        self._config_resolution = None
        stages = [
            SimpleNamespace(
                stage_id=number,
                stage_type="llm",
                is_comprehension=number == 0,
                sampling_constraints={},
                engine_args=SimpleNamespace(async_chunk=True),
            )
            for number in range(len(self.family.stages.STAGES))
        ]
        return kwargs.get("deploy_config"), stages

    def _initialize_stages(self, stage_init_timeout: int) -> None:
        self.model_below = below = self.family.stages(self.knobs)
        self._runtime = SimpleNamespace(create_membership_controller=lambda: None, shutdown=lambda: None)
        self.stage_pools = []
        for number, client in enumerate(below.clients):
            config = SimpleNamespace(
                model=None,
                max_model_len=65536,
                async_chunk=True,
                stage_id=number,
                model_stage=client.model_stage,
                hf_config=None,
                allowed_local_media_path="",
                allowed_media_domains=None,
            )
            kind = client.final_output_type if client.final_output_type == "audio" else "latent"
            self.stage_pools.append(
                StagePool(
                    number,
                    client,
                    stage_vllm_config=SimpleNamespace(model_config=config),
                    output_processor=below.processor(number, kind),
                )
            )
        self.num_stages = len(self.stage_pools)
        self.stage_clients = list(below.clients)
        self.stage_vllm_configs = [None] * self.num_stages
        self.output_processors = [pool.output_processor for pool in self.stage_pools]
        self.default_sampling_params_list = [client.default_sampling_params for client in below.clients]
        self.stage_metadata = [
            StageRuntimeInfo(
                final_output=client.final_output,
                final_output_type=client.final_output_type,
                stage_type=client.stage_type,
                model_stage=client.model_stage,
            )
            for client in below.clients
        ]
        self.supported_tasks = ("generate", "speech")


class ScriptedOmni(DuplexOmni):
    def _create_engine(self, **fields: Any) -> DuplexOmniEngine:
        return ScriptedEngine(duplex_audio_encoder=encode_audio, **fields)


class LoudnessVad:
    """Loud is speech: in place of the network that judges each window; what is made of it is genuine."""

    frame_samples = 512

    def new_state(self) -> object:
        return None

    def infer(self, frame: np.ndarray, state: object) -> tuple[float, object]:
        return (0.95 if float(np.sqrt(np.mean(np.square(frame)))) >= 0.01 else 0.02), state


def use_loudness() -> None:
    SileroVADBackendProvider.get = lambda self: LoudnessVad()


def write_deploy(path: Path, family: Family, limits: dict[str, Any]) -> Path:
    """A deploy file for the genuine loader; ``limits`` are those of ``duplex_session``."""
    lines = [f"pipeline: {family.pipeline}", "session_mode: duplex", "async_chunk: true", "duplex_session:"]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in {"warmup_frames": -1, **limits}.items()]
    lines += ["stages:", *(f"  - stage_id: {number}" for number in range(len(family.stages.STAGES)))]
    path.write_text("\n".join(lines) + "\n")
    return path
