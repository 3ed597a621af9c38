"""Random operations against a model made of dicts, restarts included, on both databases."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memory.store.errors import SessionExists, SessionGone
from memory.store.store import Keeping, Store
from tests.store.conftest import Clock, put

SESSION_MS, FRAME_MS = 1000, 400
NAMES = st.sampled_from(["a", "b", "c", "d"])
ALIASES = st.sampled_from([None, "door", "gate"])
FRAMES = st.sampled_from(["f1", "f2", "f3"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def tenant_of(name: str) -> str:
    return "t1" if name in "ab" else "t2"


@dataclass
class Model:
    """What the store should hold for one session."""

    alias: str | None
    created_ms: int
    touched_ms: int
    facts: list[tuple[int, str, Any]] = field(default_factory=list)
    flushed: int = 0
    frames: set[str] = field(default_factory=set)
    closed: bool = False
    open: bool = True


class StoreMachine(RuleBasedStateMachine):
    url_of: Any
    """Makes a fresh database and gives its URL."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="vigil-store-")
        self.clock = Clock()
        self.sessions: dict[str, Model] = {}
        self.expires: dict[tuple[str, str], int] = {}
        self.url = self.url_of(self.folder.name)
        self.store = self.run(self._open())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def _open(self) -> Store:
        keeping = Keeping(session_ms=SESSION_MS, frame_ms=FRAME_MS)
        return await Store.open(self.url, Path(self.folder.name), now_ms=self.clock, keeping=keeping)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def _forget(self, name: str) -> None:
        model = self.sessions.pop(name)
        for uuid in model.frames:
            key = (tenant_of(name), uuid)
            if not any(uuid in m.frames for n, m in self.sessions.items() if tenant_of(n) == key[0]):
                self.expires.pop(key, None)

    # --- rules -----------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.create("a", None)

    @rule(name=NAMES, alias=ALIASES)
    def create(self, name: str, alias: str | None) -> None:
        taken = name in self.sessions or any(
            alias and model.alias == alias and not model.closed and tenant_of(other) == tenant_of(name)
            for other, model in self.sessions.items()
        )
        making = self.store.create(
            name, tenant=tenant_of(name), model="m", pack_digest="p", renderer=1, alias=alias
        )
        if taken:
            with pytest.raises(SessionExists):
                self.run(making)
            return
        self.run(making)
        self.sessions[name] = Model(alias, self.clock.now, self.clock.now)

    @rule(
        name=NAMES, data=st.dictionaries(st.sampled_from(["x", "y"]), JSON), kind=st.sampled_from(["k", "l"])
    )
    def append(self, name: str, kind: str, data: dict[str, Any]) -> None:
        if name not in self.sessions:
            with pytest.raises(SessionGone):
                self.run(self.store.session(name))
            return
        model, session = self.sessions[name], self.run(self.store.session(name))
        model.open = True
        model.facts.append((self.clock.now, kind, data))
        assert session.log.append(kind, data) == len(model.facts)

    @rule(name=NAMES)
    def flush(self, name: str) -> None:
        if name in self.sessions:
            self.run(self.run(self.store.session(name)).log.flush())
            self.sessions[name].open = True

    @rule(name=NAMES, uuid=FRAMES)
    def put(self, name: str, uuid: str) -> None:
        if name not in self.sessions:
            return
        session = self.run(self.store.session(name))
        self.sessions[name].open = True
        self.run(put(session, uuid, f"{tenant_of(name)}/{uuid}".encode()))
        self.sessions[name].frames.add(uuid)
        self.expires[tenant_of(name), uuid] = self.clock.now + FRAME_MS

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        if name in self.sessions:
            self.run(self.run(self.store.session(name)).close())
            self.sessions[name].closed = True
            self.sessions[name].open = True

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        if name in self.sessions:
            self.run(self.run(self.store.session(name)).release())
            self.sessions[name].open = False

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.sessions:
            self.run(self.store.delete(name))
            self._forget(name)
        else:
            with pytest.raises(SessionGone):
                self.run(self.store.delete(name))

    @rule(ms=st.sampled_from([1, 150, 400, 1000]))
    def time_passes(self, ms: int) -> None:
        self.clock.now += ms

    @rule()
    def sweep(self) -> None:
        for name, model in self.sessions.items():  # the sweep knows what is durable
            if model.open:
                self.run(self.run(self.store.session(name)).log.flush())
        swept = self.run(self.store.sweep(self.clock.now))
        outlived = [
            name
            for name, model in self.sessions.items()
            if not model.open
            and (model.facts[-1][0] if model.facts else model.created_ms) + SESSION_MS <= self.clock.now
        ]
        for name in outlived:
            self._forget(name)
        expired = [key for key, expires in self.expires.items() if expires <= self.clock.now]
        for tenant, uuid in expired:
            del self.expires[tenant, uuid]
            for name, model in self.sessions.items():
                if tenant_of(name) == tenant:
                    model.frames.discard(uuid)
        assert (swept.sessions, swept.frames, swept.orphans) == (len(outlived), len(expired), 0)

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        for model in self.sessions.values():
            model.open = False
        self.store = self.run(self._open())

    # --- what must hold after each of them -------------------------------------------------------------

    @invariant()
    def listings_agree(self) -> None:
        for tenant in ("t1", "t2"):
            listed = self.run(self.store.sessions(tenant))
            expected = sorted(
                (
                    (model.created_ms, name)
                    for name, model in self.sessions.items()
                    if tenant_of(name) == tenant
                ),
                reverse=True,
            )
            assert [(info.created_ms, info.id) for info in listed] == expected
            for info in listed:
                model = self.sessions[info.id]
                assert (info.closed_ms is not None, info.alias) == (model.closed, model.alias)

    @invariant()
    def frames_agree(self) -> None:
        for tenant in ("t1", "t2"):
            name = next((name for name in self.sessions if tenant_of(name) == tenant), None)
            if name is None or not self.sessions[name].open:
                continue
            session = self.run(self.store.session(name))
            for uuid in ("f1", "f2", "f3"):
                if (tenant, uuid) in self.expires:
                    assert session.frames.get(uuid) == f"{tenant}/{uuid}".encode()
                else:
                    with pytest.raises(KeyError):
                        session.frames.get(uuid)

    @precondition(lambda self: self.sessions)
    @rule(name=NAMES, after=st.integers(0, 4))
    def logs_agree(self, name: str, after: int) -> None:
        if name not in self.sessions:
            return
        entries = self.run(self.run(self.store.session(name)).log.read(after))
        self.sessions[name].open = True
        expected = list(enumerate(self.sessions[name].facts, start=1))[after:]
        assert [(e.seq, (e.at_ms, e.kind, e.data)) for e in entries] == expected


def check(url_of: Any, examples: int) -> None:
    machine = type("Machine", (StoreMachine,), {"url_of": staticmethod(url_of)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_store_agrees_with_a_dict_on_sqlite() -> None:
    check(lambda folder: f"sqlite:///{folder}/v.db", examples=25)


def test_the_store_agrees_with_a_dict_on_postgresql(postgres: Any) -> None:
    check(lambda folder: postgres.empty_database(), examples=10)
