"""The service while its store is away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from memory.store.errors import StoreError
from memory.store.store import Store
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def store_of(served: Served) -> Store:
    assert served.core.keeper.store is not None
    return served.core.keeper.store


class Outage:
    """While it lasts, the database takes and gives nothing."""

    def __init__(self, store: Store, patch: pytest.MonkeyPatch) -> None:
        self._database = store._database
        self._patch = patch
        self._writer = store._writer

    async def _away(self, *_: Any, **__: Any) -> Any:
        raise StoreError("connection refused")

    def begin(self) -> None:
        self._patch.setattr(self._database, "write", self._away)
        self._patch.setattr(self._database, "read", self._away)
        self._patch.setattr(self._writer, "_patience_s", 0.0)

    def end(self) -> None:
        self._patch.undo()


async def test_a_session_goes_on_when_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract: 503 with the store's own code and a time to come back; then the same session, with all that
    was taken before."""
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            assert (await served.see(n)).status_code == 200
        before = (await served.client.get("/v1/sessions/cam")).json()
        outage = Outage(store_of(served), monkeypatch)
        outage.begin()
        refused = await served.see(3)
        assert refused.status_code == 503, refused.text
        assert error(refused)["code"] == "store_unavailable"
        assert int(refused.headers["retry-after"]) >= 1
        new = await served.see(3, headers={"x-session-id": "other"})
        assert (new.status_code, error(new)["code"]) == (503, "store_unavailable")
        looked = await served.client.get("/v1/sessions")
        assert (looked.status_code, error(looked)["code"]) == (503, "store_unavailable")
        outage.end()
        for _ in range(50):
            again = await served.see(3)
            if again.status_code == 200:
                break
            assert again.status_code in (503, 409), again.text
        assert again.status_code == 200
        after = (await served.client.get("/v1/sessions/cam")).json()
        assert after["id"] == before["id"]
        assert after["counts"]["frames"] == 4


async def test_the_stores_figures_are_in_the_metrics(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        text = (await served.client.get("/metrics")).text
        count = re.search(r"^vigil_store_write_seconds_count (\S+)$", text, re.M)
        assert count and float(count[1]) >= 3
        written = re.search(r"^vigil_store_facts_total (\S+)$", text, re.M)
        assert written and float(written[1]) >= 9
        assert "vigil_store_open_sessions 1.0" in text
