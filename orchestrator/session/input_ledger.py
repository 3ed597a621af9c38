"""Input accounting: bytes are reserved at admission and released when the backend has taken them."""

from __future__ import annotations

from orchestrator.wire.errors import ResourceExhausted


class InputBytes:
    """Bytes admitted but not yet taken, by operation. Never above ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, int] = {}
        self.pending = 0

    def reserve(self, operation_id: str, size: int) -> None:
        """Charge ``size`` bytes, or refuse and retain nothing."""
        if self.pending + size > self._limit:
            raise ResourceExhausted(
                f"{self.pending} of {self._limit} bytes of input are pending; "
                f"wait until some is taken, then send this append ({size} bytes) again",
                code="input_backpressure",
            )
        self._held[operation_id] = size
        self.pending += size

    def release(self, operation_id: str) -> None:
        """Give back exactly what was reserved for the operation."""
        self.pending -= self._held.pop(operation_id)
