"""A dead stage of the genuine server, and a dead server. Last of the files here: it takes a peer with it."""

from __future__ import annotations

import pytest

from engine_launch.duplex_check import duplex_check
from engine_launch.duplex_trial import probe_duplex
from engine_launch.liveness import Liveness
from tests.peers.conftest import Peers
from tests.peers.test_check import lines, spec_of

pytestmark = pytest.mark.peer


def test_a_dead_stage_is_told_from_a_dead_server(peers: Peers) -> None:
    peer, spec = peers("aura"), spec_of("aura")
    peer.die(engine=True)
    checked = duplex_check(peer.url, spec, deadline_s=5.0)
    assert not checked.ok
    peer.die()
    seen = lines(duplex_check(peer.url, spec, deadline_s=5.0).checks)
    assert "nothing answers" in seen["reachable"].detail
    assert probe_duplex(peer.url, peer.model, spec).liveness is Liveness.DEAD
