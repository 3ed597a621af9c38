"""Video through PyAV: containers opened with typed errors, pictures at true times, upright and bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

import av
import av.error
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from bridges.frames import FrameBounds, bounded_size, encode_jpeg
from bridges.media_http import REDIRECTS, HttpBody
from bridges.media_rtsp import Relay
from bridges.media_types import (
    MediaError,
    MediaFrame,
    MediaInfo,
    MediaOptions,
    MediaPiece,
    MediaSound,
    MediaStatistics,
    Sampler,
    shown,
)

OPEN_S = 10.0
READ_S = 10.0
_LIVE = {"fpsprobesize": "0", "analyzeduration": "300000"}
"""A camera is not looked at for seconds before it is shown."""
_NOWHERE = {"protocol_whitelist": "data"}
"""What is named in a playlist is not opened."""
_STAMPS = {"multipart/x-mixed-replace": {"use_wallclock_as_timestamps": "1"}}
"""Pictures that come one by one have no times but those at which they come."""
_UNKNOWN_INTERVAL_MS = 40
_MISSING_TAIL_MS = 1000
_EARLY = 512
"""Pieces of sound that wait for the first picture."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A container and its moving picture, closed when it is left. ``behind``: where its bytes come from."""

    container: InputContainer
    stream: VideoStream
    behind: HttpBody | Relay | None = None

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.container.close()
        if self.behind is not None:
            self.behind.close()


def open_http(url: str, place: Callable[[str], str]) -> Opened:
    """As ``open_video``, over connections of our own.

    :param place: see ``HttpBody``
    """
    body = HttpBody(url, place, wait_s=READ_S)
    try:
        return open_video(url, body)
    except BaseException:
        body.close()
        raise


def open_rtsp(url: str, place: Callable[[str], str]) -> Opened:
    """As ``open_video``, to nowhere but where ``place`` allows, redirects included."""
    for _ in range(REDIRECTS + 1):
        try:
            relay = Relay(place(url), wait_s=OPEN_S)
        except (OSError, ValueError) as failed:
            raise MediaError("unreachable", f"{shown(url)} cannot be opened: {_why(failed)}") from failed
        try:
            opened = open_video(relay.url)
        except MediaError as error:
            relay.close()
            if relay.location is None:
                raise MediaError(error.code, error.message.replace(shown(relay.url), shown(url))) from None
            if not relay.location.lower().startswith(("rtsp://", "rtsps://")):
                raise MediaError("unsupported", f"{shown(url)} redirects to what is no RTSP") from None
            url = relay.location
            continue
        except BaseException:
            relay.close()
            raise
        return Opened(opened.container, opened.stream, relay)
    raise MediaError("unreachable", f"{shown(url)} redirects too often")


def open_video(location: str, body: HttpBody | None = None) -> Opened:
    """Open a file or URL and find its moving picture (cover art is none).

    :param body: its bytes, if they are fetched already
    :raises MediaError: it cannot be used
    """
    name = shown(location)
    options = {"rtsp_transport": "tcp", **_LIVE} if location.startswith(("rtsp:", "rtsps:")) else {}
    if body is not None:
        options = {**_NOWHERE, **(_LIVE if body.endless else {}), **_STAMPS.get(body.kind, {})}
    remote = "://" in location
    waits = (OPEN_S, READ_S) if remote and body is None else None
    try:
        container = av.open(body or location, "r", options=options, timeout=waits)
    except (av.error.FileNotFoundError, av.error.HTTPNotFoundError) as missing:
        raise MediaError("not_found", f"there is no {name}") from missing
    except (av.error.HTTPUnauthorizedError, av.error.HTTPForbiddenError) as refused:
        raise MediaError("login_refused", f"{name} refuses the user name and password given") from refused
    except (av.error.ProtocolNotFoundError, av.error.DemuxerNotFoundError) as unknown:
        raise MediaError("unsupported", f"{name}: {_why(unknown)}") from unknown
    except (av.error.InvalidDataError, av.error.PermissionError, av.error.IsADirectoryError) as broken:
        if remote and not location.startswith("http"):
            # A server that never answers looks like this as well.
            raise MediaError("unreachable", f"{name} sends no stream: {_why(broken)}") from broken
        raise MediaError("unreadable", f"{name} is not a readable video: {_why(broken)}") from broken
    except (av.error.FFmpegError, OSError) as failed:
        code = "unreachable" if remote else "unreadable"
        raise MediaError(code, f"{name} cannot be opened: {_why(failed)}") from failed
    art = av.stream.Disposition.attached_pic
    stream = next((one for one in container.streams.video if not one.disposition & art), None)
    if stream is None:
        container.close()
        raise MediaError("no_video", f"{name} holds no video stream")
    try:
        # The codec context is made on first use; a codec that this build lacks shows here.
        # Frame threads hold back as many pictures as there are threads; a live one is not to wait for them.
        stream.thread_type = "SLICE" if remote and not location.startswith("http") else "AUTO"
    except (AttributeError, av.error.FFmpegError, ValueError) as unknown:
        container.close()
        raise MediaError("unsupported", f"{name} is in a codec that this build cannot decode") from unknown
    return Opened(container, stream, body)


def duration_ms(container: InputContainer, stream: VideoStream) -> int | None:
    """Declared length of the video, if there is one."""
    if stream.duration is not None and stream.time_base is not None:
        return round(stream.duration * stream.time_base * 1000)
    return None if container.duration is None else container.duration * 1000 // av.time_base


class PictureClock:
    """Times of a stream's pictures in ms from its first one: rebased, never falling.

    A stream whose time stamps jump back (spliced recordings) goes on where it was.
    """

    def __init__(self, stream: VideoStream) -> None:
        rate = stream.average_rate or stream.guessed_rate
        self.interval_ms = max(1, round(1000 / rate)) if rate else _UNKNOWN_INTERVAL_MS
        self._base = stream.time_base
        self._zero: int | None = None
        self.last_ms: int | None = None

    def time_of(self, frame: VideoFrame) -> int:
        base = frame.time_base or self._base
        last = self.last_ms
        if frame.pts is None or base is None:
            time_ms = 0 if last is None else last + self.interval_ms
        else:
            stamp = round(frame.pts * base * 1000)
            if self._zero is None:
                self._zero = stamp
            elif last is not None and stamp - self._zero < last:
                self._zero = stamp - last - self.interval_ms
            time_ms = stamp - self._zero
        self.last_ms = time_ms
        return time_ms

    def sound_of(self, frame: AudioFrame) -> int | None:
        """When sound was recorded, by the pictures' clock; ``None`` before the first picture, or unknown."""
        if self._zero is None or frame.pts is None or frame.time_base is None:
            return None
        return round(frame.pts * frame.time_base * 1000) - self._zero

    @property
    def end_ms(self) -> int:
        """When the last picture has been shown."""
        return 0 if self.last_ms is None else self.last_ms + self.interval_ms


class SoundTrack:
    """The sound of one connection or file: mono at the rate that is wanted, resampled as one stream."""

    def __init__(self, stream: AudioStream, rate: int) -> None:
        self.stream = stream
        self._resampler = AudioResampler(format="flt", layout="mono", rate=rate)

    @classmethod
    def of(
        cls, container: InputContainer, options: MediaOptions, statistics: MediaStatistics
    ) -> SoundTrack | None:
        """The container's first track, if it is wanted, there, and in a codec of this build."""
        if options.sound_rate_hz is None:
            return None
        if not container.streams.audio:
            statistics.sound = "none"
            return None
        stream = container.streams.audio[0]
        try:
            known = stream.codec_context is not None and stream.rate > 0
        except (AttributeError, av.error.FFmpegError, ValueError):
            known = False
        statistics.sound = "playing" if known else "unsupported"
        return cls(stream, options.sound_rate_hz) if known else None

    def resample(self, frame: AudioFrame) -> list[AudioFrame]:
        return self._resampler.resample(frame)


def decode(
    container: InputContainer,
    stream: VideoStream,
    stop: threading.Event,
    statistics: MediaStatistics,
    sound: SoundTrack | None = None,
    received: Callable[[Packet[Any]], None] = lambda _: None,
) -> Iterator[VideoFrame | AudioFrame]:
    """All pictures that decode, in order of presentation, and the sound as it comes between them. Damage is
    counted, not raised.

    :param received: told of each packet of the video before its pictures
    """
    packets = container.demux(*([stream] if sound is None else [stream, sound.stream]))
    while not stop.is_set():
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.error.FFmpegError as cut:
            statistics.warn(f"{shown(container.name)} breaks off: {_why(cut)}")
            break
        if packet.stream is stream:
            received(packet)
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            statistics.corrupt += 1
            continue
        for frame in frames:
            if isinstance(frame, VideoFrame):
                statistics.decoded += 1
                statistics.corrupt += frame.is_corrupt
                yield frame
            elif sound is not None and isinstance(frame, AudioFrame):
                try:
                    heard = sound.resample(frame)
                except (av.error.FFmpegError, ValueError):
                    statistics.corrupt += 1  # a camera that changes its format in the middle
                    continue
                yield from heard
    if stop.is_set():
        return
    try:
        for frame in stream.codec_context.decode(None):
            statistics.decoded += 1
            yield frame
    except (av.error.FFmpegError, EOFError):
        return


def sound_at(time_ms: int, frame: AudioFrame) -> MediaSound:
    return MediaSound(time_ms, frame.to_ndarray().astype("<f4", copy=False).tobytes(), frame.sample_rate)


def encode(frame: VideoFrame, stream: VideoStream, bounds: FrameBounds) -> tuple[bytes, int, int]:
    """JPEG, width and height of a picture as a viewer would see it: turned, square pixels, within bounds."""
    aspect = float(stream.sample_aspect_ratio or 1)
    width, height = max(1, round(frame.width * aspect)), frame.height
    swap, mirror, flip = _turn(frame)
    if swap:
        width, height = bounded_size(height, width, bounds)[::-1]
    else:
        width, height = bounded_size(width, height, bounds)
    shrinks = width * height < frame.width * frame.height
    pixels = frame.reformat(
        width=width, height=height, format="rgb24", interpolation="AREA" if shrinks else "BICUBIC"
    ).to_ndarray()
    if swap:
        pixels = pixels.transpose(1, 0, 2)
        width, height = height, width
    if mirror:
        pixels = pixels[:, ::-1]
    if flip:
        pixels = pixels[::-1]
    return encode_jpeg(Image.fromarray(np.ascontiguousarray(pixels))), width, height


def _turn(frame: VideoFrame) -> tuple[bool, bool, bool]:
    """The display matrix as: swap the axes, then mirror left-right, then flip upside down.

    The matrix maps a source point to ``x' = a x + c y``, ``y' = b x + d y`` (ISO/IEC 14496-12, 8.3.2);
    angles between quarter turns go to the nearest one.
    """
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return False, False, False
    matrix = np.frombuffer(bytes(cast(Any, data)), np.int32)
    a, b, c, d = (int(matrix[place]) for place in (0, 1, 3, 4))
    if abs(b) > abs(a):
        return True, c < 0, b < 0
    return False, a < 0, d < 0


class VideoReader:
    """Plays videos one after the other as one stream of samples.

    :param locations: paths or URLs; ones that cannot be used are skipped and counted, unless none can
    :param open_: opens one
    """

    def __init__(
        self,
        locations: Sequence[str],
        name: str,
        options: MediaOptions,
        open_: Callable[[str], Opened] = open_video,
    ) -> None:
        self._locations = locations
        self._options = options
        self._open = open_
        # A single file is checked at once; a folder's files as their turn comes.
        duration = self._probe(locations[0]) if len(locations) == 1 else None
        limit = options.max_duration_ms
        if duration is not None:
            duration = duration * options.loop if limit is None else min(limit, duration * options.loop)
        self.info = MediaInfo("video", name, duration)

    def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaPiece]:
        options = self._options
        sampler = Sampler(options.period_ms, options.frames_per_tick)
        start_ms = 0
        failed: MediaError | None = None
        for _ in range(options.loop):
            before = statistics.decoded
            for location in self._locations:
                try:
                    opened = self._open(location)
                except MediaError as unusable:
                    failed = failed or unusable
                    statistics.skipped += 1
                    statistics.warn(unusable.message)
                    continue
                with opened:
                    container, stream = opened.container, opened.stream
                    clock, name = PictureClock(stream), PurePath(shown(location)).name
                    sound = SoundTrack.of(container, options, statistics)
                    early: deque[AudioFrame] = deque(maxlen=_EARLY)
                    for frame in decode(container, stream, stop, statistics, sound):
                        if isinstance(frame, AudioFrame):
                            # A decoder takes several packets before it gives the first picture.
                            early.append(frame)
                            if clock.last_ms is not None:
                                yield from _heard(early, clock, start_ms)
                            continue
                        time_ms = start_ms + clock.time_of(frame)
                        if options.max_duration_ms is not None and time_ms >= options.max_duration_ms:
                            return
                        yield from _heard(early, clock, start_ms)
                        if sampler.wants(time_ms):
                            statistics.delivered += 1
                            yield MediaFrame(time_ms, *encode(frame, stream, options.bounds), name)
                    self._note_missing_tail(name, clock, duration_ms(container, stream), stop, statistics)
                start_ms += clock.end_ms
                if stop.is_set():
                    return
            if statistics.decoded == before:
                raise failed or MediaError("unreadable", f"nothing in {self.info.name} decodes")

    def _probe(self, location: str) -> int | None:
        with self._open(location) as opened:
            return duration_ms(opened.container, opened.stream)

    @staticmethod
    def _note_missing_tail(
        name: str,
        clock: PictureClock,
        declared_ms: int | None,
        stop: threading.Event,
        statistics: MediaStatistics,
    ) -> None:
        if declared_ms is not None and declared_ms - clock.end_ms > _MISSING_TAIL_MS and not stop.is_set():
            statistics.warn(f"{name} ends after {clock.end_ms / 1000:.1f} s of {declared_ms / 1000:.1f} s")


def _heard(early: deque[AudioFrame], clock: PictureClock, start_ms: int) -> Iterator[MediaSound]:
    """What was heard since the first picture, or with it."""
    while early:
        frame = early.popleft()
        time_ms = clock.sound_of(frame)
        if time_ms is not None and time_ms >= 0:
            yield sound_at(start_ms + time_ms, frame)


def _why(error: Exception) -> str:
    if isinstance(error, av.error.ExitError):
        return "no data in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
