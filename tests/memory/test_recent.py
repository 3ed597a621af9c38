from memory.recent import RecentIds


def test_the_newest_ids_are_known_and_no_more() -> None:
    recent = RecentIds(3)
    for name in "abcb":
        recent.add(name)
    assert "a" in recent and len(recent) == 3
    recent.add("d")
    assert "a" not in recent and all(name in recent for name in "bcd") and len(recent) == 3
