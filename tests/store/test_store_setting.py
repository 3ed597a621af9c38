"""The store is a setting: sessions go on from PostgreSQL as they do from SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.store.errors import StoreError
from orchestrator.keeping import DurableKeeper, PackLasting
from orchestrator.runtime.clock import SystemClock
from orchestrator.settings import SettingsError, load_settings
from tests.fakes.postgres import PrivatePostgres
from tests.test_keeping import PACK, begun, spec


async def test_a_session_goes_on_from_postgresql(postgres: PrivatePostgres, tmp_path: Path) -> None:
    url, clock = postgres.empty_database(), SystemClock()
    before = await DurableKeeper.open(tmp_path, clock, url)
    await begun(before, spec())
    after = await DurableKeeper.open(tmp_path, clock, url)
    kept = await after.keep(spec(), PackLasting(PACK))
    assert kept.past
    assert not (tmp_path / "vigil.db").exists()
    await after.aclose()


async def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await DurableKeeper.open(tmp_path, SystemClock(), "mysql://host/name")


def test_retention_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIGIL_STORE__SESSION_DAYS", "7")
    assert load_settings().store.session_days == 7
    monkeypatch.setenv("VIGIL_STORE__SESSION_DAYS", "-1")
    with pytest.raises(SettingsError, match=r"store\.session_days"):
        load_settings()
