"""Whatever a client makes of the published description, the service answers with a typed error or does it.

Schemathesis writes the requests, valid and not, for the whole service on a real port. Half of them are bent
towards what exists, so that they get past the first check: a live session, a real picture, a known persona.
"""

from __future__ import annotations

import asyncio
import base64
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.fakes.pictures import jpeg

pytestmark = pytest.mark.timeout(400)  # about 30 s, but more on a busy machine

PICTURE = "data:image/jpeg;base64," + base64.b64encode(jpeg(3, 64, 64)).decode()
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
SEEDED = 3
EXAMPLES = 25
"""Requests of each operation, valid ones and others."""


class InThread:
    """The service, its engine and session ``cam``, on an event loop beside the blocking requests."""

    def __init__(self, folder: Any) -> None:
        self.url = ""
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._ready, self._done = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def __enter__(self) -> InThread:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(30)
        self._loop.close()

    async def _serve(self) -> None:
        limits = {"sessions": 1000}
        script = ["<silence>", "<response> A dog."]
        async with FakeEngine(script) as engine, Served(engine, self._folder, limits=limits) as served:
            for n in range(SEEDED):
                await served.see(n, "what?")
            self.url = served.url
            self._ready.set()
            await self._done.wait()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with InThread(tmp_path_factory.mktemp("data")) as service:
        yield service


MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_no_request_breaks_it(service: InThread, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    answered: Counter[str] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def asked(case: Case) -> None:
            answered[case.operation.label] += 1
            ask(case)

        with suppress(Unsatisfiable):  # an operation that takes nothing cannot be given anything wrong
            asked()
    assert len(answered) >= 8
    assert answered["POST /v1/chat/completions"] >= EXAMPLES


def ask(case: Case) -> None:
    bend(case)
    if case.operation.path.endswith("/events"):
        case.query = {**dict(case.query or {}), "follow": "false"}  # or the answer never ends
    response = case.call(timeout=30)
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 400:
        error = response.json()["error"]
        assert set(error) >= {"type", "code", "message", "param"}, error


def test_the_session_is_still_there(service: InThread) -> None:
    """Runs after the requests above: none of them may have broken what they had no business with."""
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/ready").status_code == 200


def bend(case: Case) -> None:
    """Towards what exists, by chance; the same case is always bent the same way."""
    chance = random.Random(repr((case.body, case.path_parameters, case.headers)))

    def often() -> bool:
        return chance.random() < 0.6

    if "session_id" in (case.path_parameters or {}) and often():
        gone = case.method == "DELETE" and not case.operation.path.endswith("/query")
        case.path_parameters["session_id"] = "other" if gone else "cam"
    if often():
        for name in [n for n in case.headers or {} if n.lower().startswith("x-")]:
            del case.headers[name]
    if isinstance(case.body, dict) and often():
        case.body = {**case.body, "session_id": chance.choice(["cam", "other"])}
        for name in ("user", "model", "persona", "system_prompt_key"):
            case.body.pop(name, None)
        if case.operation.path.endswith("/persona") or not often():
            case.body["persona"] = "talkative"
        if isinstance(case.body.get("messages"), list):
            case.body["messages"] = [_shown(message, chance) for message in case.body["messages"]]


def _shown(message: Any, chance: random.Random) -> Any:
    """A user's message, whose pictures are real ones."""
    if not isinstance(message, dict):
        return message
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        parts = [{"type": "image_url"}, {"type": "text", "text": "what now?"}]
    real = {"type": "image_url", "image_url": {"url": PICTURE}}
    kept = [
        real if isinstance(part, dict) and part.get("type") == "image_url" and chance.random() < 0.8 else part
        for part in parts
    ]
    return {**message, "role": "user", "content": kept}
