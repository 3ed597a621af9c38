"""Speaks ``bridges.piper_worker``'s protocol without Piper: a tone for each character, with faults by word.

``die``: it ends in the middle; ``hang``: it says nothing more; ``nonsense``: it writes what is no answer;
``fail``: it tells an error. Its argument is the file where it keeps count of its starts.
"""

import json
import math
import os
import queue
import struct
import sys
import threading
from pathlib import Path
from typing import Any

RATE = 22050
PIECE_SAMPLES = 2205


def main(starts: Path) -> None:
    starts.write_text(starts.read_text() + "start\n")
    out = sys.stdout.buffer
    lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
    cancelled = {0}

    def read() -> None:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "cancel" in request:
                cancelled.add(request["cancel"])
                starts.write_text(starts.read_text() + f"cancel {request['cancel']}\n")
            else:
                lines.put(request)
        lines.put(None)

    def tell(head: dict[str, Any], sound: bytes = b"") -> None:
        out.write(json.dumps(head).encode() + b"\n" + sound)
        out.flush()

    threading.Thread(target=read, daemon=True).start()
    tell({"ready": True})
    while (request := lines.get()) is not None:
        number, text = request["id"], request["text"]
        for at in range(max(1, len(text) // 2)):
            wave = [int(8000 * math.sin((at * PIECE_SAMPLES + i) * 0.125)) for i in range(PIECE_SAMPLES)]
            if at == 1 and "die" in text:
                os._exit(3)
            if at == 1 and "hang" in text:
                threading.Event().wait()
            if at == 1 and "nonsense" in text:
                out.write(b"\x00\xff no json\n" * 3)
                out.flush()
            if number in cancelled:
                break
            piece = struct.pack(f"<{PIECE_SAMPLES}h", *wave)
            tell({"id": number, "rate": RATE, "bytes": len(piece)}, piece)
        tell({"id": number, "error": "the script"} if "fail" in text else {"id": number, "done": True})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
