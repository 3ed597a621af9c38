"""What Vigil adds to a full-duplex engine's audio: p99 through it minus p99 direct, per audio delta.

``make bench-native``, or ``python -m evals.bench.native_bench --sessions 16 --seconds 60 --out results.json``

Three processes: a scripted engine whose every chunk holds the time it was made at, ``vigil serve`` paired
with it, and the load. Half of the clients talk to the engine, half to Vigil, all the same way and at the same
time: 200 ms of audio every 200 ms, playback acknowledged, the model free to speak. Both halves are late by
what the machine, the engine and the load themselves are late by; the difference is Vigil's.

Then, for as long again, what a switch to a fresh engine session costs: see ``evals.bench.switches``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import sys
import tempfile
import time
import wave
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect

from evals.bench.machine import machine
from evals.bench.scripted_engine import lags
from evals.bench.soak_load import spread
from evals.bench.stamping_engine import stamp_of
from evals.bench.stand import START_S, STOP_S, serving, stop
from evals.bench.switches import MARKS, UNIT_S, measure_switches

PACKET_S, RATE = 0.2, 16000
WARM_S = 8.0
TARGET_MS = 5.0
CONVERSATIONS = 8
FLAGS = ("--limits-sessions", "1000", "--auth-quota-handshakes-per-minute", "100000")


@dataclass
class Heard:
    """Latencies of one half in seconds, and what must not happen."""

    late: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    deltas: int = 0


async def talk(url: str, number: int, until: float, warm: float, heard: Heard) -> None:
    """One client. ``warm``: monotonic time from which its deltas count."""
    async with connect(url, max_size=None, compression=None, proxy=None, ping_interval=None) as socket:
        await socket.send(orjson.dumps({"type": "session.update", "session": _session()}).decode())
        reader = asyncio.create_task(_listen(socket, warm, heard))
        due = time.monotonic() + PACKET_S * number / 16  # not all at one instant
        packets = _packets()
        while due < until and not reader.done():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await socket.send(packets[round(due / PACKET_S) % len(packets)])
            due += PACKET_S
        await socket.send('{"type":"session.close"}')
        await asyncio.wait([reader], timeout=30)
        if not reader.done():
            heard.faults.append("a close was not answered")
        await asyncio.gather(reader, return_exceptions=True)


async def _listen(socket: ClientConnection, warm: float, heard: Heard) -> None:
    played: dict[str, float] = {}
    async for frame in socket:
        now = time.monotonic()
        event = orjson.loads(frame)
        match event["type"]:
            case "response.output_audio.delta":
                pcm = base64.b64decode(event["delta"])
                heard.deltas += 1
                if now >= warm:
                    heard.late.append(now - stamp_of(pcm))
                response = event["response_id"]
                played[response] = played.get(response, 0.0) + len(pcm) / 2 / event["sample_rate_hz"] * 1000
            case "response.done":
                response = event["response_id"]
                ack = {
                    "type": "playback.ack",
                    "response_id": response,
                    "played_ms": int(played.pop(response, 0.0)),
                }
                await socket.send(orjson.dumps(ack).decode())
            case "session.closed":
                return
            case "error" | "session.expired":
                heard.faults.append(f"{event['type']}: {event.get('error')}")


def _session() -> dict[str, Any]:
    return {
        "modalities": ["text", "audio"],
        "ref_audio": _reference(),
        "extra_body": {"auto_response": True},
    }


def _reference() -> str:
    """Half a second of a quiet tone as a WAV."""
    held = io.BytesIO()
    with wave.open(held, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes((np.sin(np.arange(RATE // 2) / 8) * 3000).astype("<i2").tobytes())
    return "data:audio/wav;base64," + base64.b64encode(held.getvalue()).decode()


def _packets() -> list[str]:
    """One second of a tone, as appends of 200 ms."""
    count = round(RATE * PACKET_S)
    samples = (np.sin(np.arange(5 * count) / 10) * 6000).astype("<i2")
    return [
        orjson.dumps(
            {
                "type": "input_audio_buffer.append",
                "audio": base64.b64encode(samples[n * count : (n + 1) * count].tobytes()).decode(),
                "format": "pcm16",
                "sample_rate_hz": RATE,
            }
        ).decode()
        for n in range(5)
    ]


async def measure(folder: Path, sessions: int, seconds: float) -> dict[str, Any]:
    """:param sessions: of each half; :param folder: for the service's data"""
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evals.bench.stamping_engine", stdout=PIPE
    )
    assert engine.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            url = (await engine.stdout.readline()).decode().strip()
        flags = ("--family", "minicpmo_4_5", "--limits-engine-sessions", str(2 * sessions + 2), *FLAGS)
        async with serving(folder, url, flags) as (server, vigil, log):
            direct, through, late = Heard(), Heard(), list[float]()
            begin = time.monotonic()
            watch = asyncio.create_task(lags(late))
            await asyncio.gather(
                *(
                    talk(
                        f"{route}/v1/realtime?duplex=1&autostart=0", n, begin + seconds, begin + WARM_S, half
                    )
                    for n in range(sessions)
                    for route, half in ((url, direct), (vigil.replace("http", "ws", 1), through))
                )
            )
            watch.cancel()
            await stop(server)
            said = log.read_text(errors="replace")
    finally:
        engine.terminate()
        try:
            await asyncio.wait_for(engine.wait(), STOP_S)
        except TimeoutError:
            engine.kill()
            await engine.wait()
    switches = await measure_switches(CONVERSATIONS, min(round(seconds), MARKS))
    return result_of(direct, through, late, switches, sessions, seconds, traceback="Traceback" in said)


def result_of(
    direct: Heard,
    through: Heard,
    late: Sequence[float],
    switches: Mapping[str, Any],
    sessions: int,
    seconds: float,
    *,
    traceback: bool,
) -> dict[str, Any]:
    """The bench's JSON."""
    halves = {"direct_ms": spread(direct.late), "through_vigil_ms": spread(through.late)}
    added = {
        name: round(halves["through_vigil_ms"][name] - halves["direct_ms"][name], 3)
        for name in ("p50", "p90", "p99")
    }
    return {
        "bench": "native",
        "machine": machine(),
        "sessions": sessions,
        "seconds": seconds,
        **halves,
        "added_ms": added,
        "load_lag_ms": spread(late),
        "deltas": {"direct": direct.deltas, "through_vigil": through.deltas},
        "switches": switches,
        "faults": [*direct.faults, *through.faults][:20],
        "goals": {
            f"p99 through Vigil at most {TARGET_MS:g} ms above direct": added["p99"] < TARGET_MS,
            "no unit is lost at a switch, or waits for the next one": not switches["lost"]
            and switches["gap_at_switch_ms"].get("max", 0) < 2000 * UNIT_S,
            "no fault": not direct.faults and not through.faults and not traceback,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=16, help="through Vigil, and as many direct")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vigil-native-") as folder:
        result = asyncio.run(measure(Path(folder), options.sessions, options.seconds))
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(text + "\n")
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 0 if all(result["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
