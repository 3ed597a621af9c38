"""A process that writes until it is killed: ``python -m tests.store.crash_writer URL FOLDER``.

Each session puts a frame, appends a fact that names it and a second fact, and flushes. After each flush it
prints ``session seq``: what it may rely on from then on.
"""

import asyncio
import sys
from pathlib import Path

from memory.store.store import Store
from tests.store.conftest import put


async def main(url: str, folder: str) -> None:
    store = await Store.open(url, Path(folder), now_ms=lambda: 1)

    async def write(name: str) -> None:
        session = await store.session(name)
        while True:
            uuid = f"{name}-{session.log.seq}"
            await put(session, uuid, uuid.encode() * 5000)
            session.log.append("frame_seen", {"uuid": uuid})
            seq = session.log.append("tick_answered", {"after": uuid, "text": "x" * 3000})
            await session.log.flush()
            print(name, seq, flush=True)

    await asyncio.gather(*(write(name) for name in ("s0", "s1", "s2")))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
