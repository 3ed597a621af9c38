"""The models that the server can pretend to be: which plugin decides above, which stages answer below."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from script import FAIL, LISTEN, Knobs, Unit
from stages import OUTPUT_RATE_HZ, ScriptedModel, Speech, Stage, loudness
from vllm.v1.engine import FinishReason
from vllm_omni.engine.duplex.config import DuplexCapabilities
from vllm_omni.engine.duplex.contracts import DuplexAppendPlan
from vllm_omni.engine.serialization import deserialize_additional_information
from vllm_omni.model_executor.models.aura_omni.duplex.plugin import AURA_SILENT_TOKEN_ID, AuraDuplexPlugin
from vllm_omni.model_executor.models.minicpmo_4_5.duplex.plugin import MiniCPMO45DuplexPlugin
from vllm_omni.outputs.output_processor import MultimodalOutputProcessor

FRAME_MS = 80


class FramedPlugin(MiniCPMO45DuplexPlugin):
    """Locked to frames of 80 ms, as PersonaPlex is meant to be; the package does not serve that one yet."""

    plugin_id = "framed"
    silence_continuation_samples = OUTPUT_RATE_HZ * FRAME_MS // 1000

    def capabilities(self, *, max_sessions: int) -> DuplexCapabilities:
        return replace(
            super().capabilities(max_sessions=max_sessions),
            supports_external_turn_signal=False,
            supports_client_commit=False,
            supports_barge_in=False,
            supports_session_resume=False,
            supports_audio_truncate=False,
            supports_chat_completions=False,
            text_turn_priming_units=0,
            chunk_period_ms=FRAME_MS,
            signal_sources=["model_native", "client_event"],
        )

    async def prepare_runtime_config(self, config: Any, *, model_config: Any) -> dict[str, object]:
        """No voice needs to be shown to it: without audio among its outputs the base class asks for none."""
        wanted, config.modalities = config.modalities, ("text",)
        try:
            return await super().prepare_runtime_config(config, model_config=model_config)
        finally:
            config.modalities = wanted


class LookingPlugin(AuraDuplexPlugin):
    """AURA's own; only the prompt of the first stage becomes tokens, so that no processor is needed."""

    def plan_append(self, **fields: Any) -> DuplexAppendPlan:
        prompt = dict(super().plan_append(**fields).prompt)
        facts = dict(prompt.get("additional_information") or {})
        video = (facts.pop("deferred_multi_modal_data", None) or {}).get("video") or []
        sounds = (prompt.get("multi_modal_data") or {}).get("audio")
        pcm = sounds[0] if sounds else np.zeros(0, dtype=np.float32)
        facts["heard_frames"] = int(video[0][0].shape[0]) if video else 0
        facts["heard_samples"], facts["heard_rms"] = int(pcm.size), loudness(pcm)
        return DuplexAppendPlan(prompt={"prompt_token_ids": [0] * 4, "additional_information": facts})


class WritingProcessor(MultimodalOutputProcessor):
    """Puts scripted words where a tokenizer would have written them."""

    words: dict[str, str]

    def process_outputs(self, *args: Any, **fields: Any) -> Any:
        processed = super().process_outputs(*args, **fields)
        for output in processed.request_outputs:
            for completion in output.outputs:
                completion.text = completion.cumulative_text = self.words.get(output.request_id, "")
        return processed


class LookingModel(ScriptedModel):
    """Answers a commit with one request through four stages: recognition, the model, talker, vocoder."""

    STAGES: ClassVar[tuple[Stage, ...]] = (
        Stage("asr"), Stage("llm", "text"), Stage("talker"), Stage("code2wav", "audio", connected=True),
    )  # fmt: skip
    RESUMABLE = False

    def __init__(self, knobs: Knobs) -> None:
        super().__init__(knobs)
        self._plans: dict[str, tuple[Unit, str]] = {}
        self._words: list[dict[str, str]] = [{} for _ in self.STAGES]

    def processor(self, stage_id: int, output_type: str) -> MultimodalOutputProcessor:
        processor = WritingProcessor(None, log_stats=False, engine_core_output_type=output_type)
        processor.words = self._words[stage_id]
        return processor

    def abort(self, stage_id: int, request_ids: list[str]) -> None:
        super().abort(stage_id, request_ids)
        for request_id in request_ids:
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        self._plans.pop(request_id, None)
        for words in self._words:
            words.pop(request_id, None)

    def _done(self, stage_id: int, request_id: str, tokens: list[int]) -> None:
        self.clients[stage_id].emit(request_id, tokens, finish_reason=FinishReason.STOP)

    async def run(self, stage_id: int, request_id: str, item: Any) -> None:
        await (self.recognise, self.answer, self.say, self.vocode)[stage_id](request_id, item)

    async def recognise(self, request_id: str, request: Any) -> None:
        facts = deserialize_additional_information(request.additional_information)
        if facts.get("aura_skip_submit"):
            return
        unit = Unit(
            session=str(facts.get("session_id")),
            samples=int(facts["heard_samples"]),
            rms=float(facts["heard_rms"]),
            is_speech=bool(facts.get("is_speech")),
            force_listen=False,
            frames=int(facts["heard_frames"]),
            final=True,
        )
        self._plans[request_id] = (unit, self.script.decide(unit))
        await asyncio.sleep(self.knobs.think_ms / 1000)
        self._words[0][request_id] = "scripted user words" if unit.is_speech else ""
        self._done(0, request_id, [1])

    async def answer(self, request_id: str, _: Any) -> None:
        unit, letter = self._plans[request_id]
        await asyncio.sleep(self.knobs.think_ms / 1000)
        self._words[1][request_id] = "" if letter == LISTEN else self.script.words(unit.session)[1]
        self._done(1, request_id, [AURA_SILENT_TOKEN_ID] if letter == LISTEN else [100, 101])

    async def say(self, request_id: str, _: Any) -> None:
        letter = self._plans[request_id][1]
        self.put(3, request_id, Speech(self._words[1].get(request_id, ""), letter, 0, 0))
        self._done(2, request_id, [2150])

    async def vocode(self, request_id: str, speech: Speech) -> None:
        speech.letter = "E"  # one request is one turn
        await self.sound(request_id, speech)
        self._forget(request_id)

    def hand_on(self, stage_id: int, output: Any, context: Any) -> list[dict[str, Any]]:
        plan = self._plans.get(output.request_id)
        if plan is None:
            return []
        if plan[1] == FAIL:
            raise RuntimeError("scripted failure of a stage")
        return [{"prompt_token_ids": [0] * 4}]


@dataclass(frozen=True)
class Family:
    """:param plugin: dotted name of the one that replaces the pipeline's own, where one does"""

    model: str
    pipeline: str
    stages: type[ScriptedModel] = ScriptedModel
    plugin: str | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)


FAMILIES: Mapping[str, Family] = {
    "minicpmo_4_5": Family("minicpm-o", "minicpmo_4_5"),
    "aura": Family(
        "aura", "aura_omni", LookingModel, f"{__name__}.{LookingPlugin.__name__}", {"script": "pattern:E"}
    ),
    "personaplex": Family(
        "personaplex",
        "minicpmo_4_5",
        plugin=f"{__name__}.{FramedPlugin.__name__}",
        knobs={
            "script": "pattern:" + "L" * 25 + "S" * 36 + "E",
            "speech_ms": FRAME_MS, "chunks": 1, "think_ms": 5.0, "chunk_ms": 2.0, "text": "w{n} ",
        },
    ),
}  # fmt: skip
