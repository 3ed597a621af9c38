"""The engines behind the service, for those who run it: how each does, and which take sessions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from orchestrator.api.context import Engines, context_of, tenant_of
from orchestrator.api.schemas import ERRORS
from orchestrator.wire.errors import Forbidden, NotFound

router = APIRouter(responses=ERRORS)


async def operated(request: Request, tenant: Annotated[str, Depends(tenant_of)]) -> Engines:
    """The engines, for an operator."""
    context = context_of(request)
    if not context.operates(tenant):
        raise Forbidden("engines are for those whom the setting auth.operators names", code="operators_only")
    if context.engines is None:
        raise NotFound("this service has one engine, which takes every session", code="no_engines")
    return context.engines


Operated = Annotated[Engines, Depends(operated)]
Name = Annotated[str, Path(description="HOST:PORT, as the list and the metrics have it.")]


@router.get("/v1/engines")
async def engines(fleet: Operated) -> dict[str, Any]:
    """Each engine's state, its sessions and how it keeps up."""
    return {"object": "list", "data": [_told(name, fleet) for name in fleet.statistics()]}


@router.post("/v1/engines/{name}/drain")
async def drain(name: Name, fleet: Operated) -> dict[str, Any]:
    """Give it no further session; those that it has leave it as they end or roll over."""
    return _changed(name, fleet, draining=True)


@router.post("/v1/engines/{name}/admit")
async def admit(name: Name, fleet: Operated) -> dict[str, Any]:
    """Let it take sessions again."""
    return _changed(name, fleet, draining=False)


def _changed(name: str, fleet: Engines, *, draining: bool) -> dict[str, Any]:
    try:
        fleet.drain(name, draining)
    except KeyError:
        known = ", ".join(fleet.statistics())
        raise NotFound(f"there is no engine {name!r}; known: {known}", code="engine_not_found") from None
    return _told(name, fleet)


def _told(name: str, fleet: Engines) -> dict[str, Any]:
    return {"object": "engine", "id": name, **fleet.statistics()[name]}
