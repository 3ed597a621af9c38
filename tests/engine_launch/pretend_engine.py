"""A process that looks like an engine from outside: ``python pretend_engine.py PORT [how ...]``.

how: ``crash`` prints an error and ends; ``deaf`` never listens; ``mute`` listens and answers no chat;
``broken`` answers chats with 500; ``stubborn`` ignores TERM; ``shared`` maps shared memory. It has a child,
as engines do.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from typing import Any

HOW = set(sys.argv[2:])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "standin", "max_model_len": 64}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if "mute" in HOW:
            time.sleep(60)
        elif "broken" in HOW:
            self._send(500, {"error": {"message": "EngineCore is gone"}})
        else:
            self._send(200, {"choices": [{"message": {"content": "."}}], "usage": {"prompt_tokens": 1}})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True)"
    child = f"{ignore if 'stubborn' in HOW else 'import time'}; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
    if "stubborn" in HOW:
        assert process.stdout is not None
        process.stdout.readline()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "shared" in HOW:
        segment = SharedMemory(create=True, size=4096)
        assert segment.buf is not None
    print("pretending to load weights", flush=True)
    if "crash" in HOW:
        process.kill()
        sys.exit("ValueError: Free memory on device (3/24 GiB) is less than desired")
    if "deaf" in HOW:
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
