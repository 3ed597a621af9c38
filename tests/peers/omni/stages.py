"""Stage clients without weights, under the genuine server.

All above ``StagePool.clients`` is the package's own code. A client here does what one of an engine core does:
it takes requests, aborts them, and gives outputs. The model is shaped like MiniCPM-o: a thinker, a talker and
a vocoder, the last fed by what stands for the connector of shared memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import time
import traceback
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from script import END, FAIL, LISTEN, Knobs, Script, Unit
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutputs, FinishReason
from vllm.v1.engine.exceptions import EngineDeadError
from vllm_omni.engine import OmniEngineCoreOutput
from vllm_omni.outputs.output_processor import MultimodalOutputProcessor

LISTEN_TOKEN, SPEAK_TOKEN, UNIT_END_TOKEN, TURN_END_TOKEN, CODEC_END_TOKEN = (
    151705,
    151706,
    151707,
    151708,
    6561,
)
OUTPUT_RATE_HZ = 24000
SPEECH_RMS = 0.003
KEPT_ABORTS = 400


@dataclass(frozen=True)
class Stage:
    """:param output: ``text`` or ``audio`` for a stage whose output the client sees
    :param connected: fed by the stage before it, not by the orchestrator
    """

    name: str
    output: str | None = None
    connected: bool = False


@dataclass
class Speech:
    """What one speaking unit says, on its way through the stages."""

    text: str
    letter: str
    epoch: int
    number: int
    turn: int = 0

    @property
    def ends_turn(self) -> bool:
        return self.letter == END


class StageClient:
    """Stands where the client of an engine core stands."""

    stage_type = "llm"
    replica_id = 0
    requires_multimodal_data = False
    prompt_transform_func = None
    prompt_expand_func = None
    engine_outputs: Any = None
    resources = None

    def __init__(self, model: ScriptedModel, number: int, stage: Stage) -> None:
        self.model, self.stage_id, self.model_stage = model, number, stage.name
        self.final_output, self.final_output_type = stage.output is not None, stage.output
        self.engine_input_source = [] if number == 0 else [number - 1]
        # Its presence says that the orchestrator hands inputs on; ``process_engine_inputs`` is what it calls.
        self.custom_process_input_func = (
            None if stage.connected or number == 0 else self.process_engine_inputs
        )
        self.is_comprehension = number == 0
        self.default_sampling_params = SamplingParams(
            temperature=0.0, max_tokens=2048, detokenize=False, seed=42
        )
        self.outputs: asyncio.Queue[OmniEngineCoreOutput | None] = asyncio.Queue()
        self.dead = False

    def check_health(self) -> None:
        if self.dead:
            raise EngineDeadError("scripted death")

    def shutdown(self, *_: Any, **__: Any) -> None:
        self.model.stop()

    async def collective_rpc_async(self, *_: Any, **__: Any) -> None:
        return None

    def get_payload_sender_info(self) -> None:
        return None

    def get_kv_sender_info(self, **_: Any) -> None:
        return None

    def set_engine_outputs(self, engine_outputs: Any) -> None:
        self.engine_outputs = engine_outputs

    async def add_request_async(self, request: Any, **_: Any) -> None:
        self.check_health()
        self.model.take(self.stage_id, request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self.model.abort(self.stage_id, request_ids)

    async def get_output_async(self) -> EngineCoreOutputs:
        self.check_health()
        output = await self.outputs.get()
        if output is None:
            self.dead = True
            self.check_health()
        return EngineCoreOutputs(outputs=[output], timestamp=time.monotonic())

    def emit(self, request_id: str, tokens: list[int] | None = None, **fields: Any) -> None:
        self.outputs.put_nowait(
            OmniEngineCoreOutput(request_id=request_id, new_token_ids=tokens or [], **fields)
        )

    def process_engine_inputs(
        self, source_outputs: list[Any], prompt: Any = None, streaming_context: Any = None
    ) -> list[dict[str, Any]]:
        return self.model.hand_on(self.stage_id, source_outputs[0], streaming_context)


class ScriptedModel:
    """Three stages; one task per stage and request serves what is put to it, in order."""

    STAGES: ClassVar[tuple[Stage, ...]] = (
        Stage("llm", "text"), Stage("tts"), Stage("code2wav", "audio", connected=True),
    )  # fmt: skip
    RESUMABLE = True
    """A request stays open and gets unit after unit."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs, self.script = knobs, Script(knobs)
        self.clients = [StageClient(self, number, stage) for number, stage in enumerate(self.STAGES)]
        self.aborted: list[str] = []
        self._queues: dict[tuple[int, str], asyncio.Queue[Any]] = {}
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._decided: dict[str, deque[Speech]] = defaultdict(deque)
        self._loop = asyncio.get_running_loop()

    def processor(self, stage_id: int, output_type: str) -> MultimodalOutputProcessor:
        return MultimodalOutputProcessor(None, log_stats=False, engine_core_output_type=output_type)

    @property
    def live_tasks(self) -> int:
        return sum(not task.done() for task in list(self._tasks.values()))

    def kill(self) -> None:
        """The first stage dies; from any thread."""
        self._loop.call_soon_threadsafe(self.clients[0].outputs.put_nowait, None)

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def take(self, stage_id: int, request: Any) -> None:
        if not self.STAGES[stage_id].connected:  # a connected one only gets a placeholder here
            self.put(stage_id, request.request_id, request)

    def put(self, stage_id: int, request_id: str, item: Any) -> None:
        key = (stage_id, request_id)
        self._queues.setdefault(key, asyncio.Queue()).put_nowait(item)
        if key not in self._tasks or self._tasks[key].done():
            self._tasks[key] = asyncio.create_task(self._serve(stage_id, request_id, self._queues[key]))

    def abort(self, stage_id: int, request_ids: list[str]) -> None:
        for request_id in request_ids:
            if stage_id == 0:
                self.aborted.append(request_id)
                del self.aborted[:-KEPT_ABORTS]
                self._decided.pop(request_id, None)
            self._queues.pop((stage_id, request_id), None)
            task = self._tasks.pop((stage_id, request_id), None)
            if task is not None:
                task.cancel()

    async def _serve(self, stage_id: int, request_id: str, queue: asyncio.Queue[Any]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while True:
                    await self.run(stage_id, request_id, await queue.get())
                    if not self.RESUMABLE:
                        break
            except Exception:  # shown in the server's log; the request then never ends, as with a stuck stage
                traceback.print_exc()
        if not self.RESUMABLE:
            self._queues.pop((stage_id, request_id), None)
            self._tasks.pop((stage_id, request_id), None)

    async def run(self, stage_id: int, request_id: str, item: Any) -> None:
        await (self.think, self.talk, self.sound)[stage_id](request_id, item)

    async def think(self, request_id: str, request: Any) -> None:
        duplex = (request.model_intermediate_buffer or {}).get("duplex") or {}
        unit = _unit(duplex)
        letter = self.script.decide(unit)
        await asyncio.sleep(self.knobs.think_ms / 1000)
        if letter == LISTEN:
            tokens = [LISTEN_TOKEN]
        else:
            number, text = self.script.words(unit.session)
            self._decided[request_id].append(Speech(text, letter, int(duplex.get("epoch", 0)), number))
            tokens = [SPEAK_TOKEN, 100 + number % 100, TURN_END_TOKEN if letter == END else UNIT_END_TOKEN]
        marks = {
            "meta.listen_token_id": torch.tensor([LISTEN_TOKEN]),
            "meta.turn_eos_token_id": torch.tensor([TURN_END_TOKEN]),
        }
        self.clients[0].emit(
            request_id,
            tokens,
            finish_reason=FinishReason.STOP,
            stop_reason=tokens[-1],
            multimodal_output=marks,
            is_segment_finished=True,
        )

    def hand_on(self, stage_id: int, output: Any, context: Any) -> list[dict[str, Any]]:
        """What the thinker said, as the talker's input; the model's turn is counted on at its end."""
        decided = self._decided.get(output.request_id)
        if stage_id != 1 or not decided:
            return []
        speech = decided.popleft()
        if speech.letter == FAIL:
            raise RuntimeError("scripted failure of a stage")
        duplex = context.bridge_states.get("duplex") if context is not None else None
        if isinstance(duplex, dict):
            speech.turn = int(duplex.get("model_turn_id", duplex.get("turn_id", 0)))
            if speech.ends_turn:
                duplex["model_turn_id"] = speech.turn + 1
        return [{"prompt_token_ids": [0] * 4, "model_intermediate_buffer": {"speech": speech}}]

    async def talk(self, request_id: str, request: Any) -> None:
        self.put(len(self.STAGES) - 1, request_id, (request.model_intermediate_buffer or {})["speech"])
        self.clients[1].emit(
            request_id,
            [1, 2, CODEC_END_TOKEN],
            finish_reason=FinishReason.STOP,
            stop_reason=CODEC_END_TOKEN,
            is_segment_finished=True,
        )

    async def sound(self, request_id: str, speech: Speech) -> None:
        parts = np.array_split(_tone(speech.number, self.knobs.speech_ms), max(1, self.knobs.chunks))
        text = torch.frombuffer(bytearray(speech.text.encode()), dtype=torch.uint8)
        for number, part in enumerate(parts):
            await asyncio.sleep(self.knobs.chunk_ms / 1000)
            last = number == len(parts) - 1
            output = {
                "model_outputs": torch.from_numpy(part.copy()),
                "sr": torch.tensor(OUTPUT_RATE_HZ, dtype=torch.int32),
                "meta.duplex_epoch": torch.tensor(speech.epoch, dtype=torch.int32),
                "meta.duplex_turn_id": torch.tensor(speech.turn, dtype=torch.int32),
                "meta.llm_output_text_utf8": text,
                "meta.tts_is_last_chunk": torch.tensor(last),
                "meta.segment_end": torch.tensor(last),
                "meta.turn_end": torch.tensor(last and speech.ends_turn),
            }
            self.clients[-1].emit(
                request_id,
                multimodal_output=output,
                is_segment_finished=last and self.RESUMABLE,
                finish_reason=FinishReason.STOP if last else None,
            )


def _unit(duplex: dict[str, Any]) -> Unit:
    payload = duplex.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    raw = base64.b64decode(payload.get("audio") or "")
    pcm = np.frombuffer(raw[: len(raw) // 4 * 4], dtype="<f4")
    rms = loudness(pcm)
    return Unit(
        session=str(duplex.get("session_id")),
        samples=int(pcm.size),
        rms=rms,
        is_speech=bool(payload.get("is_speech", rms >= SPEECH_RMS)),
        force_listen=bool(payload.get("force_listen")),
        frames=len(payload.get("video_frames") or []),
        final=bool(duplex.get("final")),
    )


def loudness(pcm: np.ndarray) -> float:
    return round(float(np.sqrt(np.mean(np.square(pcm)))), 4) if pcm.size else 0.0


def _tone(number: int, milliseconds: int) -> np.ndarray:
    """Each unit of speech has a pitch of its own, so that a test can tell them apart."""
    time_s = np.arange(int(OUTPUT_RATE_HZ * milliseconds / 1000)) / OUTPUT_RATE_HZ
    return (0.2 * np.sin(2 * math.pi * (220 + 20 * (number % 20)) * time_s)).astype(np.float32)
