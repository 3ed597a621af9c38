"""``python -m tests.fakes.duplex_engine --port 8099 --script pattern:LLSE``"""

from __future__ import annotations

import argparse
import asyncio
import signal

from tests.fakes.duplex_engine.engine import DuplexEngine, serve_forever
from tests.fakes.duplex_engine.faults import Faults
from tests.fakes.duplex_engine.profiles import PROFILES


async def main() -> None:
    parser = argparse.ArgumentParser(prog="duplex_engine", description="A scripted full-duplex engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="minicpmo_4_5")
    parser.add_argument(
        "--script", default="pattern:LLSE", help="pattern:LLSE | every:N | reactive:K | listen"
    )
    parser.add_argument("--max-sessions", type=int)
    parser.add_argument("--version", default="0.30.0")
    parser.add_argument("--think-ms", type=float, default=30.0)
    parser.add_argument("--chunk-ms", type=float, default=30.0)
    parser.add_argument("--time-scale", type=float, default=1.0)
    given = parser.parse_args()
    engine = DuplexEngine(
        given.script,
        PROFILES[given.profile],
        host=given.host,
        port=given.port,
        max_sessions=given.max_sessions,
        version=given.version,
        time_scale=given.time_scale,
        faults=Faults(think_ms=given.think_ms, chunk_ms=given.chunk_ms),
        keep_audio=False,
    )
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    await serve_forever(engine)


if __name__ == "__main__":
    asyncio.run(main())
