"""A data set from its files: format by name or by its looks, videos and sounds found by name in a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Protocol

from evals.readers import joyai, omni_duplex, ovo, streamingbench
from evals.readers.clip import Clip
from evals.readers.jsonl import DatasetError, dump_clip, parse_record
from evals.readers.records import Record, read_records

VIGIL = "vigil"
MOST_FILES = 200_000
"""Files of a folder that are looked at for videos."""


class Reader(Protocol):
    """A module that reads one format. Raises ``DatasetError``."""

    def fits(self, record: Mapping[str, Any], /) -> bool:
        """It looks like a record of this format."""

    def clips_of(self, records: Sequence[Record], /) -> Iterator[Clip]:
        """The clips of all records, in order."""


class _Vigil:
    """Vigil's own format, read like the others."""

    def fits(self, record: Mapping[str, Any], /) -> bool:
        return str(record.get("format", "")).startswith("vigil-clip")

    def clips_of(self, records: Sequence[Record], /) -> Iterator[Clip]:
        for record in records:
            yield parse_record(record.value, record.file, record.number)


_MODULES: tuple[ModuleType, ...] = (joyai, omni_duplex, ovo, streamingbench)
READERS: dict[str, Reader] = {VIGIL: _Vigil(), **{module.NAME: module for module in _MODULES}}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Clips, and where their files are.

    :param name: of the file or folder it was read from
    :param format: of ``READERS``
    :param files: by the name that a clip gives, of videos and sounds that were found
    :param missing: names that were not found, each once, in the order of the clips
    """

    name: str
    format: str
    clips: tuple[Clip, ...]
    files: Mapping[str, Path]
    missing: tuple[str, ...]

    def video(self, clip: Clip) -> Path | None:
        """``None``: it has none, or it is missing."""
        return None if clip.video is None else self.files.get(clip.video)

    @property
    def digest(self) -> str:
        """Of all annotations, whatever file they came from."""
        whole = hashlib.sha256()
        for clip in self.clips:
            whole.update(dump_clip(clip) + b"\n")
        return whole.hexdigest()


def open_dataset(path: Path, format: str | None = None, videos: Path | None = None) -> Dataset:
    """Read a data set.

    :param path: a ``.json`` or ``.jsonl`` file, or a folder of them
    :param format: of ``READERS``; default: by the looks of the first record
    :param videos: folder in which files are looked for, at any depth; default: where the annotations lie
    :raises DatasetError: nothing can be read, or a record is wrong: with file, number and field
    """
    records = list(_records(path))
    if not records:
        raise DatasetError(str(path), None, "", "holds no records")
    chosen = format or _sniffed(records[0])
    if chosen not in READERS:
        raise DatasetError(str(path), None, "", f"no format {chosen!r}; there are {', '.join(READERS)}")
    clips = _unique(READERS[chosen].clips_of(records))
    if not clips:
        raise DatasetError(str(path), None, "", "holds no clips")
    folder = videos or (path if path.is_dir() else path.parent)
    files, missing = find_files(_wanted(clips), folder)
    return Dataset(path.name, chosen, tuple(clips), files, missing)


def find_files(names: Iterable[str], folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Where files of these names are, and which of them are nowhere.

    A name may hold folders: it is first taken as a path below ``folder``, then the file of that name is taken
    whose own path ends most like it. Of files that fit equally well none is: that would be a guess.
    """
    found: dict[str, Path] = {}
    missing: list[str] = []
    index: dict[str, list[Path]] | None = None
    for name in dict.fromkeys(names):
        parts = [
            part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", ".", "..")
        ]
        direct = folder.joinpath(*parts)
        if parts and _is_file(direct):
            found[name] = direct
            continue
        if index is None:
            index = _index(folder)
        best = _closest(index.get(parts[-1], []) if parts else [], parts)
        if best is None:
            missing.append(name)
        else:
            found[name] = best
    return found, tuple(missing)


def _is_file(path: Path) -> bool:
    """Also of names that no file can have: too long, or with a zero in them."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _closest(candidates: Sequence[Path], parts: Sequence[str]) -> Path | None:
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    ranked = sorted(candidates, key=lambda path: -_shared(path.parts, parts))
    first, second = (_shared(path.parts, parts) for path in ranked[:2])
    return ranked[0] if first > second else None


def _shared(path: Sequence[str], parts: Sequence[str]) -> int:
    """Parts that both end with."""
    count = 0
    for one, other in zip(reversed(path), reversed(parts), strict=False):
        if one != other:
            break
        count += 1
    return count


def _index(folder: Path) -> dict[str, list[Path]]:
    index: dict[str, list[Path]] = {}
    seen = 0
    for root, _, names in os.walk(folder):
        for name in names:
            seen += 1
            if seen > MOST_FILES:
                return index
            index.setdefault(name, []).append(Path(root) / name)
    return index


def _records(path: Path) -> Iterator[Record]:
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".json", ".jsonl") and p.is_file())
        for file in files:
            yield from read_records(file, file.relative_to(path).as_posix())
    else:
        yield from read_records(path, path.name)


def _sniffed(record: Record) -> str:
    for name, reader in READERS.items():
        if reader.fits(record.value):
            return name
    problem = f"is of no known format; name one of {', '.join(READERS)}"
    raise DatasetError(record.file, record.number, "", problem)


def _unique(clips: Iterable[Clip]) -> list[Clip]:
    """Ids name folders: public formats may give one twice."""
    given = list(clips)
    taken = {clip.id for clip in given}
    seen: set[str] = set()
    found = []
    for clip in given:
        if clip.id in seen:
            name = next(n for number in count(2) if (n := f"{clip.id}.{number}") not in taken)
            taken.add(name)
            clip = clip.model_copy(update={"id": name})
        seen.add(clip.id)
        found.append(clip)
    return found


def _wanted(clips: Iterable[Clip]) -> Iterator[str]:
    for clip in clips:
        files = [clip.video, clip.audio, *(q.audio for q in clip.queries), *(s.audio for s in clip.speech)]
        yield from (name for name in files if name)
