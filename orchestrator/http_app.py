"""The HTTP application over a core: what its requests may use, and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from bridges.image_fetch import ImageFetcher
from orchestrator.api.access import LOCAL_TENANT, Access
from orchestrator.api.body import BodyBudget
from orchestrator.api.context import ApiContext, ApiLimits, RealtimeLimits
from orchestrator.api.failed_logins import FailedLogins
from orchestrator.api.forward import Forwarder
from orchestrator.api.idempotency import Idempotency
from orchestrator.api.server import make_api
from orchestrator.app import Core
from orchestrator.settings import Settings
from orchestrator.text_access import ImageAccess
from orchestrator.version import vigil_version

SWEEP_S = 60.0


def make_app(core: Core) -> FastAPI:
    """The HTTP application. Its lifespan watches the engine and, at the end, drains and closes the core."""
    settings = core.settings
    fetcher = _fetcher(settings)
    forwarder = Forwarder(settings.timeouts.request_s) if core.owning is not None else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if core.records is not None:
            await core.records.start()
        tasks = [asyncio.create_task(core.track.watch()), asyncio.create_task(_sweep(core))]
        # The heart beats until the last session is closed.
        if core.owning is not None:
            tasks.append(asyncio.create_task(core.owning.run()))
        try:
            yield
        finally:
            await core.aclose()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if fetcher is not None:
                await fetcher.aclose()
            if forwarder is not None:
                await forwarder.aclose()

    return make_api(_context(core, fetcher, forwarder), lifespan)


async def _sweep(core: Core) -> None:
    while True:
        await core.keeper.sweep()
        await core.clock.sleep(SWEEP_S)


def _operators(settings: Settings) -> Callable[[str], bool]:
    """Who may see and drain engines: those named, and where keys are off, this machine."""
    named = frozenset(settings.auth.operators)
    return lambda tenant: tenant in named or (tenant == LOCAL_TENANT and not settings.auth.required)


def _context(core: Core, fetcher: ImageFetcher | None, forwarder: Forwarder | None) -> ApiContext:
    settings, offer, records = core.settings, core.track.offer, core.records
    assert records is not None, "a service keeps its sessions"
    limits = settings.limits
    return ApiContext(
        version=vigil_version(),
        model=offer.model,
        created=core.clock.wall_ms() // 1000,
        context_tokens=offer.context_tokens,
        period_ms=offer.period_ms,
        frames_per_append=offer.capabilities.max_frames_per_append,
        defaults=core.defaults,
        capabilities=offer.capabilities,
        personas=offer.personas,
        languages=offer.languages,
        over_http=offer.over_http,
        voice=offer.voice,
        limits=ApiLimits(
            body_bytes=limits.body_bytes,
            frame_bytes=limits.frame_bytes,
            frames_per_request=limits.frames_per_request,
            query_chars=limits.query_chars,
            requests_per_session=limits.requests_per_session,
            body_s=settings.timeouts.body_s,
            request_s=settings.timeouts.request_s,
            event_streams=limits.event_streams,
        ),
        realtime=RealtimeLimits(
            first_message_s=settings.realtime.first_message_s,
            write_s=settings.realtime.write_s,
            last_events_s=settings.realtime.last_events_s,
        ),
        registry=core.registry,
        clock=core.clock,
        ids=core.ids,
        ticks=core.ticks,
        bodies=BodyBudget(limits.bodies_bytes),
        idempotency=Idempotency(limits.idempotency_keys, limits.idempotency_ttl_s, core.clock),
        metrics=core.metrics,
        text_engine=core.track.texts,
        fetch_image=ImageAccess(fetcher) if fetcher is not None else None,
        access=Access(
            settings.auth.credentials(),
            settings.auth.origins,
            core.quotas,
            core.clock,
            FailedLogins(settings.auth.failed_logins_per_minute),
        ),
        operates=_operators(settings),
        engines=core.track.engines,
        engine_state=core.track.state,
        memory_of=core.memory_of,
        sessions=records.directory,
        sources=core.sources,
        sockets=core.sockets,
        homes=core.owning,
        forwarder=forwarder,
    )


def _fetcher(settings: Settings) -> ImageFetcher | None:
    images = settings.images
    if not images.allow_hosts:
        return None
    return ImageFetcher(images.allow_hosts, limit=settings.limits.frame_bytes, timeout_s=images.fetch_s)
