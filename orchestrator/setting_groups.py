"""The groups of the settings tree, one class each; ``settings`` says where their values come from."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    DirectoryPath,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from orchestrator.api.origins import is_loopback
from orchestrator.api.public_facts import checked_kinds
from orchestrator.keys import RULE, is_plain
from orchestrator.wire.errors import InvalidRequest


def _sendable(key: SecretStr) -> SecretStr:
    if not is_plain(key.get_secret_value()):
        raise ValueError(RULE)
    return key


SentKey = Annotated[SecretStr, AfterValidator(_sendable)]
"""Sent to another server."""


class Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(Group):
    """Bounds on what clients may send and hold."""

    body_bytes: int = Field(32 * 2**20, ge=1024, description="largest request body, in bytes")
    frame_bytes: int = Field(8 * 2**20, ge=1024, description="largest encoded frame, in bytes")
    frame_pixels: int | None = Field(
        None, ge=1024, description="area of the largest picture a model is shown; default: the model's own"
    )
    frames_per_request: int = Field(16, ge=1, le=64, description="frames that one request may bring")
    query_chars: int = Field(8000, ge=1, description="longest query, in characters")
    bodies_bytes: int = Field(512 * 2**20, ge=1024, description="all request bodies in work, in bytes")
    sessions: int = Field(64, ge=1, description="sessions open at a time")
    engine_sessions: int | None = Field(
        None,
        ge=1,
        description="sessions that one full-duplex engine holds, as it was started; default: its profile's",
    )
    requests_per_session: int = Field(8, ge=1, description="requests of one session in work at a time")
    event_streams: int = Field(8, ge=1, description="readers of one session's events at a time")
    idle_s: float = Field(3600.0, gt=0, description="a session without input is closed after this, in s")
    idempotency_keys: int = Field(
        1024, ge=1, description="answers remembered by Idempotency-Key, per API key"
    )
    idempotency_ttl_s: float = Field(600.0, gt=0, description="how long such an answer is kept, in s")


class StoreGroup(Group):
    """Where sessions are kept, and for how long."""

    url: SecretStr | None = Field(
        None, description="postgresql://USER:PASSWORD@HOST/NAME; default: an SQLite file in the data folder"
    )
    session_days: float | None = Field(
        30.0, gt=0, description="a session's memory is kept for this long after its last fact, in days"
    )
    frame_hours: float | None = Field(
        24.0, ge=1, description="a frame is kept for this long after it was seen, in hours"
    )
    heartbeat_s: float = Field(
        1.0, gt=0, description="where several processes share the store: how often each says that it lives"
    )
    life_s: float = Field(
        6.0, gt=0, description="without a heartbeat for so long a process's sessions are taken over by others"
    )

    @model_validator(mode="after")
    def _beats_in_time(self) -> Self:
        if self.life_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"life_s {self.life_s:g} leaves no room for a late heartbeat: make it two heartbeats at least"
            )
        return self


class _Hosts(Group):
    """A list of hosts, in any case, as the environment or a file writes it."""

    allow_hosts: Annotated[tuple[str, ...], NoDecode] = ()

    @field_validator("allow_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return comma_list(value)

    @field_validator("allow_hosts")
    @classmethod
    def _lower(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in value)


class Images(_Hosts):
    """Where frames may come from besides ``data:`` URLs."""

    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="hosts whose http(s) image URLs are fetched; naming a private address admits it"
    )
    fetch_s: float = Field(5.0, gt=0, description="deadline of one such fetch, in s")


class SourcesGroup(_Hosts):
    """Files and streams that a client may have read by the service itself."""

    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="hosts from which RTSP, RTMP and SRT streams may be read, and over HTTP at its ports;"
        " HOST:PORT admits that port, naming a private address or network admits it",
    )
    folder: DirectoryPath | None = Field(
        None, description="folder below which files may be read; default: no files"
    )
    per_tenant: int = Field(8, ge=1, description="sources of one tenant that play at a time")
    total: int = Field(32, ge=1, description="sources that play at a time, of all tenants")


class Decision(Group):
    """When the model speaks."""

    gate: bool = Field(True, description="stay silent until the first query")
    threshold: float | None = Field(None, gt=0, lt=1, description="speak above this score, decided greedily")
    constrain: bool = Field(
        False, description="hold every answer to the model's tags, where the engine can (structured outputs)"
    )
    seed: int | None = Field(None, ge=0, description="seed of the sampling, for runs that can be repeated")
    dedup_ratio: float = Field(
        1.0, gt=0, le=1, description="likeness from which a line counts as said already (1: equal)"
    )
    dedup_rearm_s: float = Field(60.0, ge=0, description="a line may be said again after this, in s")


class MemoryGroup(Group):
    """What a session remembers, for measuring what that is worth. The defaults are the prompt pack's."""

    chunk_frames: int | None = Field(
        None, ge=1, description="frames that become one summary, as far as the engine has room for them"
    )
    overlap_frames: int | None = Field(
        None, ge=0, description="frames that are carried into the next window; 0: none, a hard cut"
    )
    keep: Literal["all", "answers", "nothing"] = Field(
        "all",
        description="what a window is told of those before it: all; answers: no summaries, only what was"
        " asked and said; nothing",
    )


class Timeouts(Group):
    """Deadlines, in seconds."""

    request_s: float = Field(120.0, gt=0, description="longest wait of a request for its answer, in s")
    body_s: float = Field(30.0, gt=0, description="longest wait for a request body, in s")
    watch_s: float = Field(10.0, gt=0, description="how often the engine is asked for a real answer, in s")
    ping_s: float = Field(10.0, gt=0, description="deadline of such an answer, in s")
    drain_s: float = Field(20.0, gt=0, description="time for open work to end at shutdown, in s")


class Realtime(Group):
    """Sessions over WebSockets; what one of them may hold, and for how long."""

    first_message_s: float = Field(10.0, gt=0, description="time for a socket's first message, in s")
    write_s: float = Field(30.0, gt=0, description="time for a client to read one event, in s")
    last_events_s: float = Field(
        5.0, gt=0, description="time for a client to read the end of its session, in s"
    )
    grace_s: float = Field(30.0, gt=0, description="a session waits this long for its lost client, in s")
    reaper_s: float = Field(5.0, gt=0, description="how often sessions are looked at for their end, in s")
    journal_bytes: int = Field(
        8 * 2**20, ge=1, description="events kept per session until they are acknowledged, in bytes"
    )
    journal_s: float = Field(60.0, gt=0, description="how long a lost event can be had again, in s")
    input_bytes: int = Field(
        16 * 2**20, ge=1, description="input of one session that waits for the model, in bytes"
    )
    history_items: int = Field(
        1024, ge=32, description="conversation items of one session that can be asked for"
    )
    commits: int = Field(4, ge=1, description="commits of one session that wait")
    output_bytes: int = Field(
        2 * 2**20, ge=1, description="events of one session that wait for its client, in bytes"
    )
    output_events: int = Field(512, ge=1, description="events of one session that wait for its client")


class Solver(Group):
    """A chat endpoint that answers what the model hands over.

    ``capabilities`` decide who is asked: a question that comes with frames goes to solvers that take
    ``images`` first, then to the others; among equals the order of the settings counts. A solver that fails
    is followed by the next.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)
    url: str = Field(pattern=r"^https?://")
    model: str = Field(min_length=1)
    api_key: SentKey | None = None
    capabilities: tuple[Literal["text", "images"], ...] = ("text",)
    deadline_s: float = Field(30.0, gt=0)
    max_in_flight: int = Field(4, ge=1)
    params: dict[str, Any] = {"max_tokens": 512, "temperature": 0.2}


class Delegation(Group):
    """Questions that the model hands to background solvers."""

    in_flight: int = Field(4, ge=1, description="questions of one session in work at a time")
    deadline_s: float = Field(60.0, gt=0, description="time for one question, all solvers together, in s")
    frames: int = Field(8, ge=0, le=64, description="newest frames that go along with a question; 0: none")


class VoiceGroup(Group):
    """Who speaks the answers of a model that only writes."""

    bridge: Literal["auto", "none", "system", "openai", "piper"] = Field(
        "auto",
        description="system: flite or espeak-ng, as installed; openai: a server with /v1/audio/speech;"
        " piper: Piper in an environment of its own; none: answers are text; auto: as system where one is"
        " installed, for sessions that ask for audio",
    )
    policy: Literal["queue", "interrupt", "latest"] = Field(
        "queue",
        description="when an answer begins while another one is spoken: each in its turn; the newest cuts"
        " the others off; the newest goes before others that wait. Text is never withheld",
    )
    name: str | None = Field(None, description="voice of sessions that name none, as the bridge knows it")
    lead_s: float = Field(
        2.0, gt=0, le=10, description="sound is sent at most that long before it is played, in s"
    )
    program: Literal["flite", "espeak-ng"] | None = Field(
        None, description="system: this one alone; default: flite for English, espeak-ng for the rest"
    )
    processes: int = Field(4, ge=1, description="system, openai: texts of all sessions in work at a time")
    url: str | None = Field(None, pattern=r"^https?://", description="openai: root of the speech server")
    model: str | None = Field(None, description="openai: its served model name")
    api_key: SentKey | None = Field(None, description="openai: key sent to it, if it wants one")
    format: Literal["pcm", "wav"] = Field("pcm", description="openai: what is asked of it")
    rate_hz: int = Field(24000, ge=8000, le=48000, description="openai: rate of its pcm, in Hz")
    piper_python: Path | None = Field(None, description="piper: interpreter of Piper's environment")
    piper_model: Path | None = Field(None, description="piper: the voice, an .onnx file")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.bridge == "openai" and not (self.url and self.model):
            raise ValueError("the bridge openai needs voice.url and voice.model")
        if self.bridge == "piper" and not (self.piper_python and self.piper_model):
            raise ValueError("the bridge piper needs voice.piper_python and voice.piper_model")
        return self


class Summarizer(Group):
    """Another engine that writes summaries and long-term blocks.

    Without a URL the engine of the sessions does, at low priority. It also does what this one can't: pictures
    where ``images`` is off, and every text that came to nothing here twice. A full-duplex engine writes none:
    there it tells of talk and, where ``images`` is on, of pictures, and the rest is cut short or counted.
    """

    url: str | None = Field(
        None, pattern=r"^https?://", description="chat endpoint that writes summaries; default: the engine"
    )
    model: str | None = Field(None, description="its served model name")
    api_key: SentKey | None = Field(None, description="key sent to it, if it wants one")
    images: bool = Field(
        True, description="it takes pictures; if not, it only merges summaries into long-term blocks"
    )
    deadline_s: float = Field(60.0, gt=0, description="time for one text, in s")
    max_in_flight: int = Field(2, ge=1, description="texts of all sessions in work at a time")
    params: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict, description="sent with each request as they are, as JSON"
    )

    @field_validator("params", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        """A table; from the environment and from flags JSON."""
        given = value[0] if isinstance(value, list) and len(value) == 1 else value
        return parsed_json(given)

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.url and not self.model:
            raise ValueError("a summarizer needs the name of its model")
        return self


class EarsGroup(Group):
    """What sessions hear with whose model only reads: a speech detector and a recogniser of words."""

    model: str | None = Field(
        None,
        min_length=1,
        description="folder of a faster-whisper model, or with ears.url its served name; default: no ears",
    )
    url: str | None = Field(
        None, pattern=r"^https?://", description="server with /v1/audio/transcriptions; default: this machine"
    )
    api_key: SentKey | None = Field(None, description="key sent to it, if it wants one")
    language: str | None = Field(
        None, pattern=r"^[a-z]{2,3}$", description="language that is spoken; default: the session's"
    )
    cough_ms: float = Field(
        300.0,
        ge=0,
        le=2000,
        description="an answer is only held by wordless speech this short, in ms; 0: any speech stops it",
    )
    verdict_s: float = Field(
        2.0, gt=0, description="an answer is held for its words no longer than this, in s"
    )
    partial_s: float = Field(
        1.0, ge=0, description="how often the words so far are looked for, 0.5 s at least; 0: never"
    )
    deadline_s: float = Field(10.0, gt=0, description="time for the words of one utterance, in s")
    threads: int = Field(2, ge=1, le=64, description="processor threads of the recogniser on this machine")
    load_s: float = Field(60.0, gt=0, description="time for it to load its model, in s")

    @field_validator("partial_s")
    @classmethod
    def _not_too_often(cls, value: float) -> float:
        """A look costs as much as a whole utterance."""
        if 0 < value < 0.5:
            raise ValueError("is 0, or 0.5 at least")
        return value

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.url and not self.model:
            raise ValueError("a recogniser needs the name of its model")
        return self


class TracingGroup(Group):
    """Traces of decisions for an OpenTelemetry collector; the standard OTEL_* variables hold too."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="root of a collector that takes OTLP over HTTP, as http://127.0.0.1:4318; default:"
        " OTEL_EXPORTER_OTLP_ENDPOINT; with neither nothing is traced",
    )
    sample: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of decisions that are traced; default: OTEL_TRACES_SAMPLER, else 1",
    )


class Webhook(Group):
    """Events of all sessions, sent to one receiver: signed, in order, tried again until they are taken."""

    url: str | None = Field(
        None, description="receiver of events: https, or http on this machine; default: none"
    )
    secret: SecretStr | None = Field(
        None, description="signs them, at least 16 characters, or whsec_ and base64 (Standard Webhooks)"
    )
    kinds: Annotated[tuple[str, ...], NoDecode] = Field(
        ("response", "delegation_done"),
        description="which facts are sent; response: ticks that said something",
    )
    timeout_s: float = Field(10.0, gt=0, description="deadline of one delivery, in s")
    keep_s: float = Field(86400.0, gt=0, description="an event not taken by then is given up, in s")
    max_in_flight: int = Field(8, ge=1, description="deliveries of all sessions at a time")

    @field_validator("kinds", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return comma_list(value)

    @field_validator("kinds")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(sorted(checked_kinds(",".join(value), "webhook.kinds")))
        except InvalidRequest as unknown:
            raise ValueError(unknown.message) from None

    @field_validator("url")
    @classmethod
    def _safe(cls, value: str | None) -> str | None:
        """What is told of a session does not travel in the clear."""
        if value is None:
            return None
        parsed = urlsplit(value)
        local = parsed.scheme == "http" and is_loopback(parsed.hostname or "")
        if not parsed.hostname or not (parsed.scheme == "https" or local):
            raise ValueError("is https://..., or http://127.0.0.1...")
        return value

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        secret = value.get_secret_value() if value else None
        if secret is None:
            return None
        if secret.startswith("whsec_"):
            try:
                base64.b64decode(secret.removeprefix("whsec_"), validate=True)
            except binascii.Error:
                raise ValueError("what follows whsec_ is no base64") from None
        if len(secret.removeprefix("whsec_")) < 16:
            raise ValueError("is too short to keep a secret: 16 characters at least")
        return value

    @model_validator(mode="after")
    def _signed(self) -> Self:
        if self.url and self.secret is None:
            raise ValueError("a webhook needs a secret, so that its receiver can tell who sends")
        return self


def comma_list(value: Any) -> Any:
    """A list or table as the environment writes it: ``a,b`` or JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith(("[", "{")):
        return parsed_json(value)
    return tuple(part.strip() for part in value.split(",") if part.strip())


def parsed_json(value: Any) -> Any:
    """Text as JSON; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"no valid JSON: {error}") from None


def json_list(value: Any) -> list[Any]:
    """A list of JSON tables as the environment, flags or a file write it."""
    parsed = parsed_json(value)
    return [parsed_json(one) for one in ([parsed] if isinstance(parsed, dict) else parsed)]
