"""An engine of which every answer is written down: for the self-check's and the probe's odd cases."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
Handler = Callable[[dict[str, Any]], Answer]
SILENT: Answer = (0, None)
"""No answer at all, until the server ends."""


class ScriptedEngine:
    """Speaks enough of vLLM for the self-check; each path's behaviour can be replaced in ``routes``.

    Tokens are characters; the template is ``|role:text`` a message; images count one token each.
    """

    def __init__(self) -> None:
        self.limit = 8
        self.context = 4096
        self.block = 4
        self.url = ""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.seen: set[str] = set()
        self.uuids: set[str] = set()
        self.routes: dict[str, Handler] = {
            "/v1/models": lambda _: (200, {"data": [{"id": "m", "max_model_len": self.context}]}),
            "/version": lambda _: (200, {"version": "0.32.0"}),
            "/health": lambda _: (200, {}),
            "/metrics": lambda _: (200, self.metrics),
            "/openapi.json": lambda _: (200, {"paths": {}}),
            "/v1/chat/completions": self.chat,
            "/tokenize": self.tokenize,
        }
        self.metrics = f'vllm:cache_config_info{{block_size="{self.block}",num_gpu_blocks="100"}} 1.0\n'
        self.ended = threading.Event()

    def chat(self, body: dict[str, Any]) -> Answer:
        images = [p for m in body["messages"] for p in _parts(m) if p["type"] == "image_url"]
        if len(images) > self.limit:
            return refusal(f"At most {self.limit} image(s) may be provided in one prompt.")
        for part in images:
            if part["image_url"] is None and part["uuid"] not in self.uuids:
                return refusal("Cache miss for image at index 0 but data is not provided.")
            self.uuids.add(part.get("uuid", ""))
        key = json.dumps(body["messages"])
        prompt = len(self.render(body["messages"], True))
        cached = (prompt - 1) // self.block * self.block if key in self.seen else 0
        self.seen.add(key)
        usage = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}
        return 200, {"choices": [{"message": {"content": "."}}], "usage": usage}

    def tokenize(self, body: dict[str, Any]) -> Answer:
        if "prompt" in body:
            return 200, {"tokens": [ord(c) for c in body["prompt"]]}
        return 200, {"tokens": self.render(body["messages"], body.get("add_generation_prompt", True))}

    def render(self, messages: list[dict[str, Any]], opened: bool) -> list[int]:
        text = "".join(
            f"|{m['role']}:" + "".join(p.get("text", "#") for p in _parts(m)) + "\n" for m in messages
        )
        return [ord(c) for c in text + ("|assistant:" if opened else "")]


def refusal(message: str) -> Answer:
    return 400, {"error": {"message": message, "code": 400}}


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@contextmanager
def serving(engine: ScriptedEngine) -> Iterator[str]:
    """The engine behind a real socket; gives its address."""

    class Http(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            engine.requests.append((self.path, body))
            route = engine.routes.get(self.path)
            status, value = route(body) if route else (404, {"detail": "Not Found"})
            if status == 0:
                engine.ended.wait(30)
                self.close_connection = True
                return
            data = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        engine.url = f"http://127.0.0.1:{server.server_port}"
        yield engine.url
    finally:
        engine.ended.set()
        server.shutdown()
        server.server_close()


SCHEMA = {
    "paths": {"/inference/v1/generate": {}},
    "components": {"schemas": {"GenerateRequest": {"properties": {"content_parts": {}, "features": {}}}}},
}


class IdsEngine(ScriptedEngine):
    """One with a token route. A picture is four pads between brackets, ``[####]``; its text is ``[#]``.

    ``answers``: what it says of pictures by chat, and by ids; ``text``: the field it says it in
    ``says``: the ids it tells, in place of those that it makes of a request
    """

    pads = 4

    def __init__(self) -> None:
        super().__init__()
        self.answers = ("yes", "yes")
        self.text = "text"
        self.says: Callable[[str, list[int]], list[int]] = lambda _path, ids: ids
        self.routes |= {
            "/openapi.json": lambda _: (200, SCHEMA),
            "/detokenize": lambda body: (200, {"prompt": "".join(map(chr, body["tokens"]))}),
            "/v1/chat/completions/render": lambda _: (
                200,
                {"sampling_params": {"top_k": 20, "min_p": None, "max_tokens": 16, "stop_token_ids": []}},
            ),
            "/inference/v1/generate": self.generate,
        }

    def render(self, messages: list[dict[str, Any]], opened: bool) -> list[int]:
        def written(part: dict[str, Any]) -> str:
            return str(part.get("text", f"[{'#' * self.pads}]"))

        text = "".join(f"|{m['role']}:" + "".join(map(written, _parts(m))) + "\n" for m in messages)
        return [ord(c) for c in text + ("|assistant:" if opened else "")]

    def tokenize(self, body: dict[str, Any]) -> Answer:
        status, told = super().tokenize(body)
        return status, told | {"tokens": self.says("/tokenize", told["tokens"])}

    def chat(self, body: dict[str, Any]) -> Answer:
        status, told = super().chat(body)
        if status == 200 and body.get("return_token_ids"):
            ids = self.render(body["messages"], True)
            told |= {"prompt_token_ids": self.says("/v1/chat/completions", ids)}
            told["choices"][0]["message"]["content"] = self.answers[0]
        return status, told

    def generate(self, body: dict[str, Any]) -> Answer:
        parts = body.get("content_parts", [])
        if any(part["uuid"] not in self.uuids for part in parts):
            return refusal("Cache miss for image at index 0 but data is not provided.")
        ids: list[int] = []
        for number in body["token_ids"]:
            ids += [number] * (self.pads if number == ord("#") else 1)
        choice: dict[str, Any] = {self.text: self.answers[1] if parts else "."}
        if allowed := body["sampling_params"].get("allowed_token_ids"):
            choice = {"token_ids": allowed, "logprobs": {"content": [{"token": f"<{allowed[0]}>"}]}}
        return 200, {"choices": [choice], "prompt_token_ids": self.says("/inference/v1/generate", ids)}
