"""Clips played to full-duplex engines, as a microphone and a camera would bring them, each to a session."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evals.files import write_json
from evals.readers.clip import Clip
from evals.replay.drive import PATIENCE_S
from evals.replay.folder import SUMMARY
from evals.report.summary import SUMMARY_FORMAT
from evals.runs.clips import ClipFolder
from evals.runs.keeper import Pictures
from evals.runs.manifest import FRAMES, RunError, native_facts_of
from evals.runs.questions import Asker
from evals.runs.recordings import clip_recording, sounds_of, unspoken
from evals.runs.runner import Ended, Progress, Stand, Suite
from evals.runs.service import serving
from evals.stats import spread
from orchestrator.app import Core, open_core
from orchestrator.auth_settings import Auth
from orchestrator.client import ClientError
from orchestrator.native_setup import NativeEngines
from orchestrator.native_track import specs_of
from orchestrator.offline.command import tail_ms
from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.offline.files import UnusableFile, data_url_of, write
from orchestrator.offline.timeline import Recording
from orchestrator.runtime.clock import SystemClock
from orchestrator.session.backend import Clock
from orchestrator.setting_groups import StoreGroup, Webhook
from orchestrator.settings import Settings
from orchestrator.wire.audio import Codec
from prompts.native import ReferenceAudio

OUT = "out.wav"
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a model is spoken to.

    :param commit: it is asked for an answer at the end of each clip; else it decides by itself when to speak
    :param voice: one of the model's; ``reference``: a WAV file whose voice it takes on
    """

    commit: bool = False
    voice: str | None = None
    reference: Path | None = None

    def session(self) -> dict[str, Any]:
        """What a session is opened with. Raises ``UnusableFile``."""
        found: dict[str, Any] = {} if self.voice is None else {"voice": self.voice}
        return found if self.reference is None else {**found, "ref_audio": data_url_of(self.reference)}

    def facts(self) -> dict[str, Any]:
        """The same for a record: a recording by its digest. Raises ``UnusableFile``."""
        told = str(self.session().get("ref_audio", "")).partition(",")[2]
        digest = hashlib.sha256(base64.b64decode(told)).hexdigest() if told else None
        return {"commit": self.commit, "voice": self.voice, "ref_audio_sha256": digest}


class NativeWatcher:
    """A ``Watcher``: engines that hold sessions, behind the service's own core and doors.

    :param asker: speaks questions that a data set only writes
    :param clock: by which clips are played
    :raises RunError: the model wants a voice and is given none, or its file can't be read
    """

    def __init__(
        self,
        settings: Settings,
        engines: NativeEngines,
        manner: Manner,
        asker: Asker,
        clock: Clock | None = None,
    ) -> None:
        profile = engines.profile
        wants = profile.reference_audio is ReferenceAudio.REQUIRED and manner.reference is None
        if wants and "audio" in profile.output:
            raise RunError(f"{engines.model} speaks with the voice of a recording: name one with --ref-audio")
        try:
            self._session, self._told = manner.session(), manner.facts()
        except UnusableFile as error:
            raise RunError(error.message) from error
        self.engines = engines
        self.manner = manner
        self.asker = asker
        self.clock = clock or SystemClock()
        self._settings = settings

    @property
    def seats(self) -> tuple[int, str]:
        most = sum(spec.admits for spec in specs_of(self._settings, self.engines))
        return min(most, self._settings.limits.sessions), "the engine has places for"

    def facts(self, suite: Suite) -> dict[str, Any]:
        asked = any(unspoken(clip) for clip in suite.clips)
        told = {**self._told, "asked_by": self.asker.voice if asked else None}
        return native_facts_of(self._settings, self.engines, told)

    def keep(self, folder: Path) -> None:
        """What such a session was made of is not to be had: it can't be done again."""

    def inputs(self, clip: Clip, suite: Suite) -> Sequence[Path]:
        return [path for name in sounds_of(clip) if (path := suite.sounds.get(name)) is not None]

    @asynccontextmanager
    async def opened(self, folder: Path, suite: Suite, key: str) -> AsyncIterator[Stand]:
        with TemporaryDirectory(prefix="vigil-eval-") as data:
            # A service for this run alone, whatever the settings say of the one that people use.
            own: dict[str, Any] = {
                "data": Path(data),
                "advertise": None,
                "auth": Auth.model_validate({"required": False}),
                "store": StoreGroup.model_validate({}),
                "webhook": Webhook.model_validate({}),
            }
            settings = self._settings.model_copy(update=own)
            core = await open_core(settings, self.engines, durable=True, clock=self.clock)
            async with serving(core) as url, aclosing(self.asker):
                yield _Playing(self, core, suite, folder, url)

    def options(self, url: str) -> PlayOptions:
        audio = self.engines.profile.audio
        asks = self.manner.commit
        return PlayOptions(
            url,
            session=self._session,
            asks=asks,
            rate_hz=audio.input_rate_hz,
            codec=Codec(audio.input_format),
            tail_ms=tail_ms(None, asks),
        )


class _Playing:
    def __init__(self, watcher: NativeWatcher, core: Core, suite: Suite, run: Path, url: str) -> None:
        self._watcher = watcher
        self._core = core
        self._suite = suite
        self._run = run
        self._pictures = Pictures(run / FRAMES)
        self._options = watcher.options(url)
        self._clock = watcher.clock

    async def watch(self, clip: Clip, files: ClipFolder, progress: Progress, stop: asyncio.Event) -> Ended:
        suite, options, clock = self._suite, self._options, self._clock
        video = suite.videos.get(clip.id)
        questions = await self._watcher.asker.spoken(clip, self._run)
        whole = await clip_recording(clip, video, suite.sounds, options.rate_hz, questions)
        recording = whole.recording
        files.begin()
        progress.view(clip, None)
        started, began = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC), clock.now()
        played: Played | None = None
        error: ClientError | None = None
        lost = not await self._answers(stop)
        if not lost and not stop.is_set():
            try:
                played = await play([recording], options, clock, stop)
            except ClientError as refused:
                error = refused
        if played is not None:
            await asyncio.to_thread(write, files.path / OUT, played)
        against = _against(played, error, lost)
        word = "interrupted" if stop.is_set() else "failed" if against is not None else "complete"
        facts = {
            "format": SUMMARY_FORMAT,
            "outcome": word,
            "transport": "realtime",
            "started_at": started.isoformat(timespec="seconds"),
            "wall_s": round(clock.now() - began, 3),
            "error": against if word == "failed" else None,
            **_figures(recording, played),
        }
        await asyncio.to_thread(write_json, files.path / SUMMARY, facts)
        if word == "complete" and played is not None:
            shown = await asyncio.to_thread(self._kept, recording, played)
            asked = [asdict(one) for one in whole.asked]
            return Ended(facts, {"session": played.session_id, "shown": shown, "asked": asked})
        return Ended(
            facts, error=against["message"] if against and word == "failed" else None, engine_lost=lost
        )

    def _kept(self, recording: Recording, played: Played) -> list[tuple[int, str]]:
        """The pictures of a clip put by; when each was shown, in ms of its stream, and its digest. Blocks."""
        kept = [self._pictures.keep(picture) for picture in recording.pictures]
        times = [int(frame["time_ms"]) for frame in played.timeline["frames"]]
        return [(at, kept[min(number, len(kept) - 1)]) for number, at in enumerate(times)]

    async def _answers(self, stop: asyncio.Event) -> bool:
        """Wait until an engine takes sessions; False: none did."""
        until = self._clock.now() + PATIENCE_S
        while not self._core.track.state().ready:
            if stop.is_set():
                return True
            if self._clock.now() > until:
                return False
            await self._clock.sleep(_LOOK_S)
        return True


def _against(played: Played | None, error: ClientError | None, lost: bool) -> dict[str, str] | None:
    if lost:
        return {"code": "engine_unreachable", "message": "no engine takes sessions any more"}
    if error is not None:
        return {"code": error.code, "message": error.message}
    if played is None or played.ok:
        return None
    return {"code": "session_failed", "message": "; ".join(played.against)}


def _figures(recording: Recording, played: Played | None) -> Mapping[str, Any]:
    """Of one clip, for people."""
    media_s = round(recording.samples.size / recording.rate_hz, 3)
    source = {"media_s": media_s, "pictures": len(recording.pictures)}
    rows = played.rows if played is not None else []
    answers = [row for row in rows if row["kind"] == "response"]
    first = spread(row["timing"].get("response_created_to_first_audio_ms") for row in answers)
    return source | {
        "units": sum(row["kind"] == "unit" for row in rows),
        "responses": len(answers),
        "said_s": round(sum(row["audio_ms"] for row in answers) / 1000, 3),
        "first_audio_ms": asdict(first),
        "drained": played is not None and played.drained,
    }
