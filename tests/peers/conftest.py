"""``peers(family, ...)``: a running genuine server, kept for the run and set back to its first knobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peers.environment import peer_venv
from tests.peers.peer import Peer

Peers = Callable[..., Peer]

PEER_TEST_TIMEOUT_S = 900
"""Of a test with a peer: the first one builds its environment."""

KNOBS: dict[str, dict[str, Any]] = {
    "minicpmo_4_5": {"script": "pattern:LLSSE", "think_ms": 30.0, "chunk_ms": 30.0, "chunks": 4},
    "aura": {"script": "pattern:E", "think_ms": 30.0, "chunk_ms": 30.0, "chunks": 4},
    "personaplex": {
        "script": "pattern:" + "L" * 25 + "S" * 36 + "E",
        "think_ms": 5.0,
        "chunk_ms": 2.0,
        "chunks": 1,
    },
}
LIMITS: dict[str, Any] = {"max_sessions": 2, "disconnect_grace_s": 5.0, "reaper_interval_s": 0.2}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("peer") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PEER_TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Peer]]:
    servers: dict[str, Peer] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
def peers(_servers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """``limits`` are laid over ``LIMITS``; servers with equal ones are shared. A dead one is started anew."""
    used: list[Peer] = []

    def start(family: str = "minicpmo_4_5", **limits: Any) -> Peer:
        wanted = {**LIMITS, **limits}
        key = json.dumps([family, wanted], sort_keys=True)
        server = _servers.get(key)
        if server is None or not server.alive:
            log = tmp_path_factory.mktemp("peer") / f"{family}.log"
            server = _servers[key] = Peer(peer_venv(), family, log, limits=wanted)
        server.turn(**KNOBS[family])
        server.settle()
        used.append(server)
        return server

    yield start
    for server in used:
        if server.alive:
            server.drop()
            server.turn(**KNOBS[server.family])


@pytest.fixture
def peer(peers: Peers) -> Peer:
    """The MiniCPM-like one."""
    return peers()
