"""Prompt packs that sessions were made with: each kept once, verbatim, as long as a session refers to it."""

from __future__ import annotations

from sqlalchemy import Connection, delete, exists, select

from memory.store.database import FRAMES_LOCK, Database, Refused
from memory.store.errors import SessionGone
from memory.store.schema import PACK_REFS, PACKS


async def keep_pack(database: Database, session: str, digest: str, source: str) -> None:
    """Let the session refer to a pack, stored under its digest. Raises ``SessionGone``."""
    pack = database.insert(PACKS).values(digest=digest, source=source).on_conflict_do_nothing()
    reference = database.insert(PACK_REFS).values(session=session, digest=digest).on_conflict_do_nothing()

    def work(connection: Connection) -> None:
        connection.execute(pack)
        connection.execute(reference)

    try:
        await database.write(work, shared=FRAMES_LOCK)
    except Refused:
        raise SessionGone(f"session {session} was deleted") from None


async def packs_of(database: Database, session: str) -> dict[str, str]:
    """The sources of the packs that a session refers to, by digest."""
    query = select(PACKS.c.digest, PACKS.c.source).join(PACK_REFS).where(PACK_REFS.c.session == session)
    return await database.read(
        lambda connection: {row.digest: row.source for row in connection.execute(query)}
    )


def drop_unused(connection: Connection) -> None:
    """Remove packs to which no session refers any more; under the exclusive ``FRAMES_LOCK``."""
    connection.execute(delete(PACKS).where(~exists().where(PACK_REFS.c.digest == PACKS.c.digest)))
