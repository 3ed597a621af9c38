"""Where the sessions of a run live: their facts go to their tapes, their frames to files by content."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from pathlib import Path

from evals.runs.tape import Tape
from memory.store.base import Entry
from memory.store.store import Store
from memory.store.transient import TransientLog
from orchestrator.keeping import Kept, Lasting, NothingLeft
from orchestrator.runtime.registry import SessionSpec


class Pictures:
    """Encoded pictures by the SHA-256 of their bytes, in a folder that many clips share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, data: bytes) -> str:
        """Write it if it is not there; its digest. Blocks."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{id(data)}.part")
            draft.write_bytes(data)
            draft.replace(path)
        return sha256

    def read(self, sha256: str) -> bytes:
        """Raises ``KeyError`` where it is not there any more, or is another one now."""
        try:
            data = self.path(sha256).read_bytes()
        except OSError as gone:
            raise KeyError(sha256) from gone
        if hashlib.sha256(data).hexdigest() != sha256:
            raise KeyError(sha256)
        return data

    def path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256


class ClipFrames:
    """A ``FrameStore`` of one clip's frames as they are sent to the engine.

    ``index`` tells under which digest each is kept, for whoever asks the engine again.
    """

    def __init__(self, pictures: Pictures, tape: Tape) -> None:
        self._pictures = pictures
        self._tape = tape
        self.index: dict[str, str] = {}

    def write(self, uuid: str, data: bytes) -> None:
        self.index[uuid] = self._pictures.keep(data)

    async def put(self, uuid: str, data: bytes) -> None:
        await self._tape.enter()
        self._tape.kept(uuid)

    def get(self, uuid: str) -> bytes:
        return self._pictures.read(self.index[uuid])


Watching = Callable[[str], "Watched"]
"""The clip behind a session's name."""


class Watched:
    """What is kept of one clip while it is watched. ``session_id``: of its session, once that is open."""

    def __init__(self, name: str, tape: Tape, frames: ClipFrames) -> None:
        self.name = name
        self.tape = tape
        self.frames = frames
        self.session_id: str | None = None


class RunKeeper(NothingLeft):
    """A ``Keeper`` that gives each session what its clip has.

    :param key: of the run. Each clip's frames and cache have a key made of it: what a clip costs does not
        depend on which others were watched before, and doing it again gives the same requests
    """

    store: Store | None = None

    def __init__(self, key: bytes, watching: Watching, now_ms: Callable[[], int]) -> None:
        self._key = key
        self._watching = watching
        self._now_ms = now_ms

    async def keep(self, spec: SessionSpec, lasting: Lasting) -> Kept:
        watched = self._watching(spec.alias)
        watched.session_id = spec.session_id
        log = TransientLog(self._now_ms, max_entries=1)

        def told(entry: Entry) -> None:
            watched.tape.fact(entry.kind, entry.data)

        log.subscribe(told)
        key = hmac.digest(self._key, watched.name.encode(), "sha256")
        nothing: Sequence[Entry] = ()
        return Kept(spec.session_id, log, watched.frames, key, key.hex(), nothing, _nothing, _nothing)

    async def salt(self, tenant: str) -> str:
        return self._key.hex()

    async def sweep(self) -> None:
        """Everything stays."""

    async def aclose(self) -> None:
        """Tapes are closed by those who opened them."""


async def _nothing(*_: object) -> None:
    """There is nothing to end."""
