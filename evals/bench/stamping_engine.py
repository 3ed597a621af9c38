"""The native bench's engine, in a process of its own: every chunk of speech holds the time it was made at.

Prints its address, then serves until it is terminated. The time is the machine's monotonic clock in
nanoseconds, a bit a sample, so that it survives any codec but a lossy one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import numpy as np

from bridges.circuit import RealClock
from orchestrator.wire.audio import Samples
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, Unit

BITS = 64
LOUD = 0.5
SESSIONS = 256
SCRIPT = "every:4"
"""Of four units three are spoken: a session hears twelve chunks in four seconds."""


def stamped(_: Unit, __: int, samples: int) -> Samples:
    """A chunk that begins with the time."""
    now = time.monotonic_ns()
    bits = np.array([now >> place & 1 for place in range(BITS)], np.float32)
    return np.concatenate([(bits - 0.5) * 2 * LOUD, np.full(samples - BITS, LOUD, np.float32)])


def stamp_of(pcm: bytes) -> float:
    """Seconds of the monotonic clock at which a PCM16 chunk was made."""
    bits = np.frombuffer(pcm[: 2 * BITS], "<i2") > 0
    return sum(1 << place for place, bit in enumerate(bits) if bit) / 1e9


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with DuplexEngine(
        SCRIPT, MINICPM_LIKE, max_sessions=SESSIONS, keep_audio=False, voice=stamped, clock=RealClock()
    ) as engine:
        sys.stdout.write(f"{engine.url}\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
