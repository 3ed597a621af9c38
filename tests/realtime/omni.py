"""vLLM-Omni's public duplex client, imported without the engine it comes with.

The package's own ``__init__`` loads the engine; a bare module with its path stands in for it, so that the
client's modules are found and nothing else is.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from types import ModuleType


def _stand_in() -> None:
    spec = PathFinder.find_spec("vllm_omni")
    assert spec is not None and spec.submodule_search_locations, "run `make setup`"
    module = ModuleType("vllm_omni")
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules.setdefault("vllm_omni", module)


_stand_in()

from vllm_omni.clients.duplex import (  # noqa: E402
    DuplexClient,
    DuplexProtocolError,
    DuplexSessionClosedError,
    EventCollector,
    ReconnectPolicy,
    ResponseHandle,
    SessionConfig,
    image_data_url,
)

__all__ = [
    "DuplexClient",
    "DuplexProtocolError",
    "DuplexSessionClosedError",
    "EventCollector",
    "ReconnectPolicy",
    "ResponseHandle",
    "SessionConfig",
    "image_data_url",
]
