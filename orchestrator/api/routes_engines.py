"""The engines behind the service, for those who run it: how each does, and which take sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from orchestrator.api.access import Caller
from orchestrator.api.body import HeldBody, parse_object
from orchestrator.api.context import Engines, caller_of, context_of, tenant_of
from orchestrator.api.schemas import ERRORS
from orchestrator.wire.errors import Forbidden, InvalidRequest, NotFound

router = APIRouter(responses=ERRORS)


async def operated(request: Request, tenant: Annotated[str, Depends(tenant_of)]) -> Engines:
    """The engines, for an operator."""
    context = context_of(request)
    if not context.operates(tenant):
        raise Forbidden("engines are for those whom the setting auth.operators names", code="operators_only")
    return context.engines


Operated = Annotated[Engines, Depends(operated)]
Name = Annotated[str, Path(description="HOST:PORT, as the list and the metrics have it.")]


@router.get("/v1/engines")
async def engines(fleet: Operated) -> dict[str, Any]:
    """Each engine's state, its sessions and how it keeps up."""
    return {"object": "list", "data": [_told(name, fleet) for name in fleet.statistics()]}


@router.post("/v1/engines", status_code=201)
async def add(
    request: Request, fleet: Operated, caller: Annotated[Caller, Depends(caller_of)]
) -> dict[str, Any]:
    """One engine more, checked with real requests first."""
    context = context_of(request)
    held = HeldBody(context.bodies, caller.sends)
    try:
        raw = await held.read(request, context.limits.body_bytes, context.limits.body_s)
    finally:
        held.release()
    url = parse_object(raw).get("url")
    if not isinstance(url, str) or not url.strip():
        raise InvalidRequest('name the engine as {"url": "http://host:port"}', param="url")
    return _told(await fleet.add(url.strip().rstrip("/")), fleet)


@router.delete("/v1/engines/{name}")
async def remove(name: Name, fleet: Operated) -> dict[str, Any]:
    """Forget an engine; sessions that are still on it go on elsewhere at once."""
    with _known(name, fleet):
        await fleet.remove(name)
    return {"object": "engine.deleted", "id": name, "deleted": True}


@router.post("/v1/engines/{name}/drain")
async def drain(name: Name, fleet: Operated) -> dict[str, Any]:
    """Give it no further session; those that it has leave it as they end or roll over."""
    return _changed(name, fleet, draining=True)


@router.post("/v1/engines/{name}/admit")
async def admit(name: Name, fleet: Operated) -> dict[str, Any]:
    """Let it take sessions again."""
    return _changed(name, fleet, draining=False)


def _changed(name: str, fleet: Engines, *, draining: bool) -> dict[str, Any]:
    with _known(name, fleet):
        fleet.drain(name, draining)
    return _told(name, fleet)


@contextmanager
def _known(name: str, fleet: Engines) -> Iterator[None]:
    try:
        yield
    except KeyError:
        known = ", ".join(fleet.statistics())
        raise NotFound(f"there is no engine {name!r}; known: {known}", code="engine_not_found") from None


def _told(name: str, fleet: Engines) -> dict[str, Any]:
    return {"object": "engine", "id": name, **fleet.statistics()[name]}
