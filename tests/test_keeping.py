"""Which session goes on under an alias when the service comes back, and which does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory.facts import MemoryOpened, QueryClearedFact, fact_data
from memory.render import RENDERER
from orchestrator.folder_lock import FolderInUse
from orchestrator.keeping import DurableKeeper, Kept, PackLasting, TransientKeeper
from orchestrator.runtime.clock import SystemClock, system_ids
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import SessionConfig
from orchestrator.session.facts import SessionOpened, config_data
from prompts.loader import load_pack
from prompts.pack import Pack
from tests.packs import edited, reworded

CLOCK = SystemClock()
PACK = load_pack("joyvl")
OPENED = MemoryOpened(
    pack="joyvl", pack_digest=PACK.digest, renderer=RENDERER, persona="default", language="en", limits={}
)
FACT = QueryClearedFact(media_time_ms=5)


def spec(alias: str = "cam", tenant: str = "home", model: str = "m") -> SessionSpec:
    return SessionSpec(system_ids("duplex-"), tenant, alias, SessionConfig(model))


async def begun(keeper: DurableKeeper, wanted: SessionSpec, pack: Pack = PACK) -> Kept:
    """A session with one fact, durable."""
    kept = await keeper.keep(wanted, PackLasting(pack))
    kept.log.append(FACT.kind, fact_data(FACT))
    await kept.log.flush()
    return kept


async def after_a_crash(folder: Path, before: DurableKeeper) -> DurableKeeper:
    """The keeper of the next process; a process that ends in any way lets go of the folder."""
    before._lock.release()
    return await DurableKeeper.open(folder, CLOCK)


async def test_a_second_service_does_not_share_a_folder_without_a_database(tmp_path: Path) -> None:
    """It would go on with sessions that the first one is at work on."""
    first = await DurableKeeper.open(tmp_path, CLOCK)
    with pytest.raises(FolderInUse):
        await DurableKeeper.open(tmp_path, CLOCK)
    await first.aclose()
    await (await DurableKeeper.open(tmp_path, CLOCK)).aclose()


async def test_a_session_that_a_crash_cut_off_goes_on(tmp_path: Path) -> None:
    before = await DurableKeeper.open(tmp_path, CLOCK)
    await begun(before, spec())
    after = await after_a_crash(tmp_path, before)
    kept = await after.keep(spec(), PackLasting(PACK))
    assert list(kept.history) == [FACT]
    await after.aclose()


async def test_a_session_that_a_shutdown_ended_goes_on(tmp_path: Path) -> None:
    before = await DurableKeeper.open(tmp_path, CLOCK)
    kept = await begun(before, spec())
    await kept.ended("shutdown")
    await kept.released()
    await before.aclose()
    after = await DurableKeeper.open(tmp_path, CLOCK)
    assert list((await after.keep(spec(), PackLasting(PACK))).history) == [FACT]
    await after.aclose()


@pytest.mark.parametrize("reason", ["reset", "idle_ttl_expired", "client_close", "internal_error"])
async def test_a_session_that_ended_does_not(tmp_path: Path, reason: str) -> None:
    keeper = await DurableKeeper.open(tmp_path, CLOCK)
    kept = await begun(keeper, spec())
    await kept.ended(reason)
    await kept.released()
    assert list((await keeper.keep(spec(), PackLasting(PACK))).history) == []
    await keeper.aclose()


async def test_a_session_that_is_still_leaving_is_never_taken_up(tmp_path: Path) -> None:
    """A reset frees the alias before the old session is gone; the new one must not find its memory."""
    keeper = await DurableKeeper.open(tmp_path, CLOCK)
    old = await begun(keeper, spec())
    fresh = await keeper.keep(spec(), PackLasting(PACK))
    assert list(fresh.history) == []
    old.log.append(FACT.kind, fact_data(FACT))
    await old.ended("reset")
    await old.released()
    fresh.log.append(FACT.kind, fact_data(FACT))
    await fresh.log.flush()
    await keeper.aclose()


@pytest.mark.parametrize("other", [{"model": "other"}, {"tenant": "work"}, {"alias": "door"}])
async def test_another_model_tenant_or_alias_begins_anew(tmp_path: Path, other: dict[str, str]) -> None:
    before = await DurableKeeper.open(tmp_path, CLOCK)
    await begun(before, spec())
    after = await after_a_crash(tmp_path, before)
    kept = await after.keep(spec(**other), PackLasting(PACK))
    assert list(kept.history) == []
    await after.aclose()


async def opened_and_kept(tmp_path: Path) -> DurableKeeper:
    """A session of ``PACK`` that a crash cut off, and the keeper of the process after it."""
    before = await DurableKeeper.open(tmp_path, CLOCK)
    kept = await before.keep(spec(), PackLasting(PACK))
    kept.log.append(OPENED.kind, fact_data(OPENED))
    await kept.log.flush()
    return await after_a_crash(tmp_path, before)


async def test_an_edited_pack_comes_with_the_old_one(tmp_path: Path) -> None:
    """The old one is as it was, so that the live window can finish on it."""
    after = await opened_and_kept(tmp_path)
    kept = await after.keep(spec(), PackLasting(reworded(PACK)))
    assert list(kept.history) == [OPENED]
    assert kept.packs == (PACK,)
    assert set(await after.store.packs(kept.session_id)) == {PACK.digest, reworded(PACK).digest}
    await after.aclose()


async def test_a_pack_with_other_tags_begins_anew(tmp_path: Path) -> None:
    after = await opened_and_kept(tmp_path)
    other = edited(PACK, lambda files, model: model["control"]["tokens"].append("<|other|>"))
    assert list((await after.keep(spec(), PackLasting(other))).history) == []
    await after.aclose()


async def test_a_session_whose_pack_cannot_be_read_begins_anew(tmp_path: Path) -> None:
    before = await DurableKeeper.open(tmp_path, CLOCK)
    kept = await before.keep(spec(), PackLasting(PACK))
    gone = OPENED.model_copy(update={"pack_digest": "gone"})
    kept.log.append(gone.kind, fact_data(gone))
    await kept.log.flush()
    after = await after_a_crash(tmp_path, before)
    assert list((await after.keep(spec(), PackLasting(PACK))).history) == []
    await after.aclose()


async def test_keys_belong_to_the_tenant_and_stay(tmp_path: Path) -> None:
    keeper = await DurableKeeper.open(tmp_path, CLOCK)
    first = await keeper.keep(spec("a"), PackLasting(PACK))
    second = await keeper.keep(spec("b"), PackLasting(PACK))
    other = await keeper.keep(spec("a", tenant="work"), PackLasting(PACK))
    assert first.frame_key == second.frame_key != other.frame_key
    assert first.salt == second.salt == await keeper.salt("home") != other.salt
    await keeper.aclose()


async def test_a_transient_keeper_keeps_nothing() -> None:
    keeper = TransientKeeper(CLOCK)
    kept = await keeper.keep(spec(), PackLasting(PACK))
    kept.log.append(FACT.kind, fact_data(FACT))
    await kept.ended("shutdown")
    await kept.released()
    assert list((await keeper.keep(replace(spec()), PackLasting(PACK))).history) == []
    await keeper.aclose()


@pytest.mark.parametrize("key", ["ref_audio", "tts_ref_audio"])
async def test_the_reference_voice_is_kept_beside_the_log(tmp_path: Path, key: str) -> None:
    """It may be megabytes, and no client sends it twice."""
    voice = "data:audio/wav;base64," + "A" * 2**20
    config = SessionConfig("m", extra_body={key: voice, "top_k": 3})
    wanted = SessionSpec(system_ids("duplex-"), "home", "cam", config)
    before = await DurableKeeper.open(tmp_path, CLOCK)
    first = await before.keep(wanted, PackLasting(PACK))
    opened = SessionOpened(first.session_id, config_data(config))
    first.log.append(opened.kind, opened.data())
    await first.log.flush()
    after = await after_a_crash(tmp_path, before)
    kept = await after.keep(spec(), PackLasting(PACK))
    assert kept.session_id == first.session_id
    assert kept.record is not None and kept.record.config == config
    assert all(voice not in str(entry.data) for entry in kept.past)
    await after.aclose()
