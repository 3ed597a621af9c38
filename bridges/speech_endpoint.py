"""A synthesiser behind OpenAI's ``/v1/audio/speech``: vLLM-Omni, Kokoro servers, OpenAI itself.

Sound is taken as it is streamed, as raw PCM16 or as WAV. Connections are kept. An endpoint that does not
answer is left alone for a while, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from bridges.circuit import Circuit, Clock, EngineState
from bridges.clause_speaker import RawSound
from bridges.sound import Samples, Wav
from bridges.speech import SpeechError

_READ = 8192
_ERROR_BYTES = 4096
_TYPES = ("audio/", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """:param url: root of the server, with or without ``/v1``
    :param rate_hz: of raw PCM, which says nothing of it
    :param format: ``pcm`` or ``wav``
    :param first_s: until the first sound; ``gap_s``: between two pieces of it; ``piece_s``: one text
    :param in_flight: requests of all sessions at a time
    :param rest_s: how long an endpoint without answers is left alone
    """

    url: str
    model: str
    api_key: str | None = None
    voice: str | None = None
    format: str = "pcm"
    rate_hz: int = 24000
    connect_s: float = 2.0
    first_s: float = 5.0
    gap_s: float = 5.0
    piece_s: float = 60.0
    in_flight: int = 8
    rest_s: float = 5.0


class SpeechEndpoint:
    """See ``Synthesiser``. Open it inside a running loop's life; ``aclose`` ends its connections."""

    def __init__(self, options: EndpointOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._url = options.url.rstrip("/").removesuffix("/v1").rstrip("/") + "/v1/audio/speech"
        self._http: aiohttp.ClientSession | None = None
        self._places = asyncio.Semaphore(options.in_flight)
        self._circuit = Circuit(clock)
        self._rest_until = float("-inf")
        self.requests = 0
        self.failed = 0
        self.running = 0
        self.waiting = 0

    @property
    def state(self) -> EngineState:
        return self._circuit.state

    def statistics(self) -> Mapping[str, int]:
        """Requests made, of them failed, in work; and texts that wait for a place."""
        told = {"requests": self.requests, "requests_failed": self.failed}
        return {**told, "running": self.running, "waiting": self.waiting}

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        options = self._options
        if self._clock.now() < self._rest_until:
            raise SpeechError("speech_unavailable", f"the speech endpoint is {self.state}; it is left alone")
        async with self._place():
            self.requests += 1
            began, heard = self._clock.now(), False
            try:
                async with asyncio.timeout(options.piece_s):
                    async with self._post(text, voice or options.voice) as response:
                        await _checked(response)
                        reader = _Reader(options.rate_hz, options.format)
                        while data := await self._data(response, options.gap_s if heard else options.first_s):
                            samples, rate = reader.push(data)
                            if len(samples):
                                heard = True
                                self._circuit.answered()
                                yield RawSound(samples, rate)
                if not heard:
                    raise SpeechError("speech_failed", "the speech endpoint gave no sound")
            except SpeechError:
                self.failed += 1
                self._circuit.answered()
                raise
            except TimeoutError:
                self._misses(began)
                raise SpeechError("speech_timeout", "the speech endpoint gave no sound in time") from None
            except (aiohttp.ClientError, OSError) as error:
                self._misses(None)
                told = f"the connection to the speech endpoint broke ({type(error).__name__})"
                raise SpeechError("speech_unreachable", told) from error

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._places.release()

    def _misses(self, began: float | None) -> None:
        self.failed += 1
        if began is None:
            self._circuit.lost()
        else:
            self._circuit.missed(began)
        if self.state in (EngineState.DOWN, EngineState.WEDGED):
            self._rest_until = self._clock.now() + self._options.rest_s

    def _post(self, text: str, voice: str | None) -> Any:
        options = self._options
        if self._http is None:
            key = options.api_key
            self._http = aiohttp.ClientSession(
                headers={"authorization": f"Bearer {key}"} if key else {},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=options.connect_s),
                connector=aiohttp.TCPConnector(limit=options.in_flight, keepalive_timeout=30.0),
                auto_decompress=False,
            )
        body: dict[str, Any] = {"model": options.model, "input": text, "response_format": options.format}
        if voice:
            body["voice"] = voice
        return self._http.post(self._url, json={**body, "stream": True}, allow_redirects=False)

    async def _data(self, response: aiohttp.ClientResponse, within_s: float) -> bytes:
        async with asyncio.timeout(within_s):
            return await response.content.read(_READ)


class _Reader:
    """Bytes of an answer to samples: WAV where it begins as one, else what was asked for."""

    def __init__(self, rate_hz: int, format_: str) -> None:
        self._rate = rate_hz
        self._wav = Wav() if format_ == "wav" else None
        self._begun = False
        self._spare = b""

    def push(self, data: bytes) -> tuple[Samples, int]:
        data = self._spare + data
        self._spare = b""
        if not self._begun and self._wav is None:
            if len(data) < 4:
                self._spare = data
                return np.zeros(0, np.int16), self._rate
            if data[:4] == b"RIFF":
                self._wav = Wav()
            elif data[:3] == b"ID3" or data[:4] in (b"OggS", b"fLaC"):
                raise SpeechError("speech_format", "the speech endpoint sent compressed sound")
        self._begun = True
        if self._wav is not None:
            samples = self._wav.push(data)
            return samples, self._wav.rate_hz or self._rate
        cut = len(data) & ~1
        self._spare = data[cut:]
        return np.frombuffer(data[:cut], "<i2").astype(np.int16), self._rate


async def _checked(response: aiohttp.ClientResponse) -> None:
    kind = response.headers.get("content-type", "application/octet-stream").lower()
    if response.status == 200 and kind.startswith(_TYPES):
        return
    said = b""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(1.0):
            said = await response.content.read(_ERROR_BYTES)
    if response.status == 200:
        raise SpeechError("speech_format", f"the speech endpoint sent {kind}, no sound")
    told = said.decode("utf-8", "replace")[:200]
    raise SpeechError("speech_refused", f"the speech endpoint answered {response.status}: {told}")
