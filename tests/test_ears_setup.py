"""The ears that settings name: a model on this machine, a server, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridges.asr_http import HttpTranscriber
from orchestrator.ears_setup import open_ears
from orchestrator.exits import Exit, SetupError
from orchestrator.settings import Settings
from tests.realtime.hearing import MODEL


def settings(**named: Any) -> Settings:
    return Settings(ears=named)  # type: ignore[arg-type]


async def test_none_are_named() -> None:
    assert await open_ears(settings(), hears=False) is None
    assert await open_ears(settings(), hears=True) is None


async def test_a_model_on_this_machine() -> None:
    ears = await open_ears(settings(model=str(MODEL), language="en", cough_ms=200), hears=False)
    assert ears is not None
    try:
        assert ears.options.language == "en" and ears.options.cough_ms == 200
        assert ears.transcriber.statistics()["worker_starts"] == 1
        assert ears.detector().window == 512
    finally:
        await ears.transcriber.aclose()


async def test_a_server() -> None:
    ears = await open_ears(settings(model="whisper-1", url="http://127.0.0.1:9", verdict_s=20), hears=False)
    assert ears is not None and isinstance(ears.transcriber, HttpTranscriber)
    assert ears.options.verdict_s == ears.options.deadline_s == 10
    await ears.transcriber.aclose()


async def test_what_cannot_be_had_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no model\.bin") as error:
        await open_ears(settings(model=str(tmp_path)), hears=False)
    assert error.value.exit_code == Exit.USAGE
    (tmp_path / "model.bin").write_bytes(b"none")
    with pytest.raises(SetupError, match="can't start"):
        await open_ears(settings(model=str(tmp_path)), hears=False)
    with pytest.raises(SetupError, match="hears by itself"):
        await open_ears(settings(model=str(MODEL)), hears=True)
