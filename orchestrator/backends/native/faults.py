"""What an engine's refusals are to a client: the same code, under the type that the contract gives it."""

from __future__ import annotations

from bridges.duplex_client.link import LinkCode, LinkError
from orchestrator.wire.errors import EngineFault, EngineUnavailable, VigilError, of_code

GONE = frozenset({LinkCode.LINK_LOST, LinkCode.LINK_CLOSED, LinkCode.CONNECT_FAILED})
"""Nothing is there to take the command."""
_OURS = frozenset(LinkCode) - {LinkCode.BACKPRESSURE}
RETRY_S = 1.0


def told_of(error: LinkError) -> VigilError:
    """Codes of our own side of the link are the engine's fault to a client."""
    if error.code == LinkCode.BAD_ENGINE_EVENT:
        return EngineFault(error.message)
    if error.code == LinkCode.TIMEOUT:
        return EngineUnavailable(error.message, code="timeout", retry_after_s=RETRY_S)
    if error.code in _OURS:
        return EngineUnavailable(error.message, code="engine_error", retry_after_s=RETRY_S)
    return of_code(error.code, error.message)


def mismatch(what: str) -> LinkError:
    """The engine is not the one that the profile describes."""
    return LinkError("runtime_contract_invalid", f"the engine does not fit its profile: {what}")
