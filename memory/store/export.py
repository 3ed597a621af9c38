"""A session as one file: an ordinary tar that streams, so its size never sits in memory.

::

    session.json              {"format": 1, "session": {...}, "last_seq": N}
    facts/000001.jsonl ...    one fact a line: {"seq", "at_ms", "kind", "data"}, in order, without gaps
    frames/000001.json ...    [{"uuid", "size", "file"}] of the frames that follow under frames/<file>
    frames/<file>             encoded bytes (JPEG, PNG or WebP) as the model saw them
    packs/<digest>.json       the prompt packs its facts name, with which the prompts can be made again
    end.json                  {"facts": count, "frames": count, "sha256": of all facts files together}

A tar without ``end.json`` was cut short. Frames whose retention has passed are not in it (a file that is
listed and absent expired during the export). Resume tokens and tenant keys are never exported.
"""

from __future__ import annotations

import asyncio
import hashlib
import tarfile
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection, Select, select

from memory.store.database import Database
from memory.store.files import FrameFiles
from memory.store.log import DurableLog
from memory.store.packs import packs_of
from memory.store.schema import FRAME_REFS, FRAMES

FORMAT = 1
_FRAMES_A_PAGE = 200


async def export_tar(
    about: Mapping[str, Any],
    log: DurableLog,
    last_seq: int,
    *,
    database: Database,
    files: FrameFiles,
) -> AsyncIterator[bytes]:
    """The tar in pieces, one member at a time.

    :param about: the ``session`` object of ``session.json``
    :param last_seq: the newest durable entry; later ones are not exported
    """
    created_s = int(about["created_ms"]) // 1000

    def member(name: str, data: bytes) -> bytes:
        return _member(name, data, created_s)

    yield member("session.json", orjson.dumps({"format": FORMAT, "session": about, "last_seq": last_seq}))
    digest, facts, number = hashlib.sha256(), 0, 0
    async for page in log.pages(0, last_seq):
        number += 1
        lines = b"".join(
            orjson.dumps(
                {"seq": entry.seq, "at_ms": entry.at_ms, "kind": entry.kind, "data": entry.data},
                option=orjson.OPT_APPEND_NEWLINE,
            )
            for entry in page
        )
        digest.update(lines)
        facts += len(page)
        yield member(f"facts/{number:06d}.jsonl", lines)
    frames, number = 0, 0
    async for records in _frame_pages(database, log.session):
        number += 1
        yield member(f"frames/{number:06d}.json", orjson.dumps(records))
        for record in records:
            try:
                data = await asyncio.to_thread(files.read, record["file"])
            except KeyError:
                continue  # expired since the page was read
            frames += 1
            yield member(f"frames/{record['file']}", data)
    for pack, source in sorted((await packs_of(database, log.session)).items()):
        yield member(f"packs/{pack}.json", source.encode())
    yield member("end.json", orjson.dumps({"facts": facts, "frames": frames, "sha256": digest.hexdigest()}))
    yield bytes(2 * tarfile.BLOCKSIZE)


async def _frame_pages(database: Database, session: str) -> AsyncIterator[list[dict[str, Any]]]:
    after = ""
    while True:
        query = (
            select(FRAMES.c.uuid, FRAMES.c.size, FRAMES.c.file)
            .join(FRAME_REFS)
            .where(FRAME_REFS.c.session == session, FRAME_REFS.c.uuid > after)
            .order_by(FRAME_REFS.c.uuid)
            .limit(_FRAMES_A_PAGE)
        )
        records = await database.read(partial(_fetch, query))
        if not records:
            return
        yield records
        after = records[-1]["uuid"]


def _fetch(query: Select[Any], connection: Connection) -> list[dict[str, Any]]:
    return [{"uuid": row.uuid, "size": row.size, "file": row.file} for row in connection.execute(query)]


def _member(name: str, data: bytes, modified_s: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mtime = modified_s
    padding = -len(data) % tarfile.BLOCKSIZE
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(padding)
