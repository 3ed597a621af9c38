"""Frozen heads come from the log, each with the pack and renderer that made it."""

from memory.store.base import Entry
from memory.store.views import heads


def test_each_head_carries_the_pack_of_the_newest_opening_before_it() -> None:
    log = [
        Entry(1, 10, "memory_opened", {"pack_digest": "p1", "renderer": 1}),
        Entry(2, 20, "head_frozen", {"head": 1, "system": "s"}),
        Entry(3, 30, "frame_seen", {}),
        Entry(4, 40, "memory_opened", {"pack_digest": "p2", "renderer": 2}),
        Entry(5, 50, "head_frozen", {"head": 2, "system": "t"}),
    ]
    found = heads(log)
    assert [(head.seq, head.at_ms, head.pack_digest, head.renderer) for head in found] == [
        (2, 20, "p1", 1),
        (5, 50, "p2", 2),
    ]
    assert found[1].data == {"head": 2, "system": "t"}
    assert heads([]) == []
