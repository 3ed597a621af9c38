"""An export is an ordinary tar with everything of a session and none of its secrets."""

import hashlib
import io
import json
import tarfile

import pytest

from memory.store.errors import SessionGone
from memory.store.store import DAY_MS, Store
from tests.store.conftest import Clock, new_session, put


async def unpack(store: Store, session: str) -> dict[str, bytes]:
    data = b"".join([part async for part in store.export(session)])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]


async def test_an_export_holds_facts_and_frames(store: Store, clock: Clock) -> None:
    session = await new_session(store, alias="door")
    await put(session, "f1", b"jpeg one")
    await put(session, "f2", b"jpeg two")
    for i in range(2001):
        session.log.append("frame_seen", {"i": i, "text": "ä\n"})
    members = await unpack(store, "s1")
    about = json.loads(members["session.json"])
    assert about["format"] == 1
    assert about["last_seq"] == 2001
    assert about["session"]["alias"] == "door"
    facts = members["facts/000001.jsonl"] + members["facts/000002.jsonl"]
    lines = [json.loads(line) for line in facts.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 2002))
    assert lines[7] == {"seq": 8, "at_ms": clock.now, "kind": "frame_seen", "data": {"i": 7, "text": "ä\n"}}
    index = json.loads(members["frames/000001.json"])
    assert {record["uuid"]: members[f"frames/{record['file']}"] for record in index} == {
        "f1": b"jpeg one",
        "f2": b"jpeg two",
    }
    assert json.loads(members["end.json"]) == {
        "facts": 2001,
        "frames": 2,
        "sha256": hashlib.sha256(facts).hexdigest(),
    }


async def test_a_session_that_is_not_open_exports_too_and_expired_frames_are_absent(
    store: Store, clock: Clock
) -> None:
    session = await new_session(store)
    await put(session, "f", b"x")
    await session.release()
    assert (await store._retention.sweep(clock.now + DAY_MS, keep=["s1"])).frames == 1
    members = await unpack(store, "s1")
    assert json.loads(members["end.json"])["frames"] == 0
    assert sorted(members) == ["end.json", "session.json"]


async def test_an_unknown_session_has_no_export(store: Store) -> None:
    with pytest.raises(SessionGone):
        await unpack(store, "nobody")
