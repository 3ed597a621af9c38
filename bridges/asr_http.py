"""An OpenAI-compatible ``/v1/audio/transcriptions`` as a ``Transcriber``."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from typing import Any

import httpx
import numpy as np

from bridges.answers import answered
from bridges.asr import RATE_HZ, AsrError, Samples, Segment, words_of
from bridges.circuit import Clock, RealClock
from bridges.timing import Durations
from bridges.tls import trusted

IN_WORK, WAITING = 4, 64
"""Requests at a time, and speech that waits for one of them to end."""

_CONNECT_S = 5.0
_MOST = 2**20
"""Bytes of an answer."""


class HttpTranscriber:
    """See ``Transcriber``. Words so far are asked for only while a request is free.

    :param url: of the server, with or without ``/v1``
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        root = url.rstrip("/").removesuffix("/v1")
        self._url = f"{root}/v1/audio/transcriptions"
        self._model = model
        self._clock = clock or RealClock()
        self._places = asyncio.Semaphore(IN_WORK)
        self._asked = 0
        self.took = Durations()
        self._counts = {"transcribed": 0, "failed": 0, "refused": 0}
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            transport=transport,
            trust_env=False,
            verify=trusted(),
        )

    async def transcribe(
        self, samples: Samples, stream: str, *, language: str | None, final: bool, deadline_s: float
    ) -> str:
        if self._asked >= (IN_WORK + WAITING if final else IN_WORK):
            self._counts["refused"] += 1
            raise AsrError("asr_overloaded", f"{self._asked} stretches of speech are being recognised")
        self._asked += 1
        asking = asyncio.create_task(self._ask(samples, language, deadline_s))
        late = asyncio.create_task(self._clock.sleep(deadline_s))
        try:
            await asyncio.wait({asking, late}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise AsrError("asr_timeout", f"no transcript within {deadline_s:g} s")
            text = asking.result()
            self._counts["transcribed"] += 1
            return text
        except AsrError:
            self._counts["failed"] += 1
            raise
        finally:
            self._asked -= 1
            for task in (asking, late):
                task.cancel()
            await asyncio.gather(asking, late, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        waiting = max(0, self._asked - IN_WORK)
        return {"waiting": waiting, "in_work": self._asked - waiting, **self._counts}

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, samples: Samples, language: str | None, within_s: float) -> str:
        fields = {"model": self._model, "response_format": "verbose_json", "temperature": "0"}
        if language:
            fields["language"] = language
        async with self._places:
            began = self._clock.now()
            try:
                sound = {"file": ("speech.wav", _wav(samples), "audio/wav")}
                status, told = await answered(
                    self._client, "POST", self._url, within_s=within_s, most=_MOST, data=fields, files=sound
                )
            except httpx.HTTPError as lost:
                raise AsrError("asr_worker_lost", f"the recogniser can't be reached: {lost!r}") from lost
            self.took.add(self._clock.now() - began)
        if status != 200:
            raise AsrError("asr_failed", f"the recogniser answered {status}")
        try:
            return _words(json.loads(told))
        except (ValueError, AttributeError, TypeError) as wrong:
            raise AsrError("asr_failed", f"the recogniser's answer can't be read: {wrong}") from None


def _words(reply: Any) -> str:
    """Segments tell how sure it is; a server that sends none is taken at its word."""
    if segments := reply.get("segments"):
        return words_of([Segment.of(each) for each in segments])
    text = reply.get("text")
    if not isinstance(text, str):
        raise ValueError("its text is none")
    return words_of([Segment(text)])


def _wav(samples: Samples) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes())
    return out.getvalue()
