"""vllm-omni's genuine duplex server, without weights: ``python server.py '{"family": "aura"}'``.

Keys: ``family``; ``port`` (0: any); ``limits`` of ``duplex_session``; ``knobs``. Prints one line when it
takes connections, ``READY`` and a JSON object with its port; ends at SIGTERM. ``/harness/*`` is for tests.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_OMNI_EVENT_DRIVEN_ORCH", "1")  # waits in place of polling

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from engine import ScriptedEngine, ScriptedOmni, use_loudness, write_deploy
from families import FAMILIES
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from script import Knobs
from vllm_omni.entrypoints.duplex.serving import OmniDuplexSessionHandler
from vllm_omni.entrypoints.openai import api_server

Peer = tuple[Any, ...]


class Sockets:
    """Which client address belongs to which session, so that a test can cut one line."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sessions: dict[Peer, str | None] = {}
        self.server: uvicorn.Server | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        peer = tuple(scope["client"])
        self.sessions[peer] = None

        async def watch(message: Any) -> None:
            text = message.get("text") or ""
            if self.sessions.get(peer) is None and ("session.created" in text or "session.resumed" in text):
                event = json.loads(text)
                self.sessions[peer] = event.get("session_id") or (event.get("session") or {}).get("id")
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            self.sessions.pop(peer, None)

    def cut(self, session_id: str | None) -> int:
        """Break connections without a close frame, as a dead network does. None: all of them."""
        assert self.server is not None
        count = 0
        for protocol in list(self.server.server_state.connections):
            transport = getattr(protocol, "transport", None)
            peer = transport.get_extra_info("peername") if transport is not None else None
            known = peer is not None and tuple(peer[:2]) in self.sessions
            if known and session_id in (None, self.sessions[tuple(peer[:2])]):
                transport.abort()
                count += 1
        return count


def add_harness(app: FastAPI, sockets: Sockets, knobs: Knobs) -> None:
    def below() -> Any:
        return app.state.engine_client.engine.model_below

    @app.get("/health")
    async def health() -> JSONResponse:
        try:
            await app.state.engine_client.check_health()
        except Exception as error:
            return JSONResponse({"error": str(error)}, 503)
        return JSONResponse({})

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {"id": app.state.model, "object": "model", "owned_by": "vllm-omni"}
        return {"object": "list", "data": [card]}

    @app.get("/harness/status")
    async def status() -> dict[str, Any]:
        model = below()
        return {
            "sessions": app.state.engine_client.active_session_count(),
            "sockets": list(sockets.sessions.values()),
            "tasks": model.live_tasks,
            "heard": model.script.heard,
            "units": model.script.units,
            "aborted": model.aborted,
        }

    @app.post("/harness/knobs")
    async def turn(request: Request) -> dict[str, Any]:
        knobs.turn(**await request.json())
        return vars(knobs)

    @app.post("/harness/drop")
    async def drop(request: Request) -> dict[str, int]:
        return {"dropped": sockets.cut((await request.json()).get("session_id"))}

    @app.post("/harness/die")
    async def die(request: Request) -> dict[str, bool]:
        if (await request.json()).get("engine"):
            below().kill()
            return {"engine": True}
        os._exit(1)


async def serve(options: dict[str, Any]) -> None:
    family = FAMILIES[options["family"]]
    knobs = Knobs(**{**family.knobs, **options.get("knobs", {})})
    folder = Path(tempfile.mkdtemp(prefix="omni-peer-"))
    (folder / family.model).mkdir()
    deploy = write_deploy(folder / "deploy.yaml", family, options.get("limits", {}))
    os.chdir(folder)  # the model's name is a folder that is there: nothing is looked up or downloaded
    ScriptedEngine.family, ScriptedEngine.knobs = family, knobs
    ScriptedOmni.engine_cls = ScriptedEngine
    use_loudness()

    app = FastAPI()
    sockets = Sockets(app)
    add_harness(app, sockets, knobs)
    app.include_router(api_server.router)
    omni = ScriptedOmni(family.model, deploy_config=str(deploy), init_timeout=60)
    app.state.model = family.model
    app.state.engine_client = omni
    app.state.api_server_count = 1
    app.state.duplex_warmup_done = None
    app.state.openai_serving_realtime = None
    app.state.openai_serving_duplex = OmniDuplexSessionHandler(duplex_omni=omni)
    config = uvicorn.Config(
        sockets, host="127.0.0.1", port=options.get("port", 0), log_level="warning", access_log=False
    )
    sockets.server = server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started and not running.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    if server.started:
        port = server.servers[0].sockets[0].getsockname()[1]
        print("READY", json.dumps({"port": port, "model": family.model}), flush=True)
    await running
    omni.shutdown()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
