"""The HTTP application: routes, error handlers, and counting of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api import (
    realtime,
    routes_chat,
    routes_engines,
    routes_events,
    routes_health,
    routes_page,
    routes_records,
    routes_sessions,
    routes_sources,
)
from orchestrator.api.body import whole_body
from orchestrator.api.chat import Chat
from orchestrator.api.context import ApiContext
from orchestrator.api.errors import install_error_handlers
from orchestrator.api.forward import Unreachable, was_forwarded
from orchestrator.api.metrics import Metrics
from orchestrator.wire.errors import Elsewhere

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_api(context: ApiContext, lifespan: Lifespan | None = None) -> FastAPI:
    app = FastAPI(
        title="Vigil",
        version=context.version,
        summary="Sessions with a real-time interaction model: frames in, decisions out.",
        lifespan=lifespan,
        redirect_slashes=False,
        # Their pages load scripts from elsewhere; /openapi.json is enough for any tool.
        docs_url=None,
        redoc_url=None,
    )
    app.state.vigil = context
    app.state.chat = Chat(context)
    app.state.event_readers = Counter()
    install_error_handlers(app, _forwarding(context))
    for routes in (
        routes_page,
        routes_health,
        routes_engines,
        routes_chat,
        routes_sessions,
        routes_sources,
        routes_records,
        routes_events,
        realtime,
    ):
        app.include_router(routes.router)
    app.add_middleware(CountRequests, metrics=context.metrics)
    if context.access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=context.access.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-session-id", "retry-after"],
            max_age=600,
        )
    return app


def _forwarding(context: ApiContext) -> Callable[[Request, Elsewhere], Awaitable[Response]]:
    async def forwarded(request: Request, elsewhere: Elsewhere) -> Response:
        homes, forwarder = context.homes, context.forwarder
        if homes is None or forwarder is None or was_forwarded(request):
            raise elsewhere
        body = await whole_body(request, context.limits.body_bytes, context.limits.body_s)
        try:
            return await forwarder.answer(elsewhere.address, request, body)
        except Unreachable:
            # It is dead, or will be: then the session is taken up here, or wherever somebody was faster.
            await homes.settled(elsewhere.session_id, elsewhere.address)
        try:
            return await forwarder.answer(homes.here, request, body)
        except Unreachable:
            raise elsewhere from None

    return forwarded


class CountRequests:
    """Counts answers by route template, never by path: paths hold ids."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                template = getattr(route, "path", "unknown")
                self._metrics.requests.labels(template, str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counting)
