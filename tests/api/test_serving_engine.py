"""The whole service in front of the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.scripted import events
from tests.api.serving import Served


@pytest.mark.engine
async def test_the_real_engine_reuses_what_the_audit_promises(engine: Any, tmp_path: Path) -> None:
    async with Served(engine, tmp_path, model=engine.model) as served:
        gated = (await served.see(0)).json()
        assert gated["interaction"]["reason"] == "gated"
        replies = [(await served.see(n, "what is there?")).json() for n in range(1, 25)]
        for reply in replies:
            interaction, usage = reply["interaction"], reply["usage"]
            assert interaction["status"] == "completed", reply
            # Whatever was warmed before the first query comes on top of what is promised.
            assert usage["prompt_tokens_details"]["cached_tokens"] >= interaction["expected_cached_tokens"]
            assert "</" not in interaction["text"]
        for reply in replies[1:]:
            cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached == reply["interaction"]["expected_cached_tokens"] > 0
        # Frames move once: bodies grow by text and ids alone.
        sizes = [reply["interaction"]["body_bytes"] for reply in replies[2:]]
        assert max(sizes) < 3 * min(sizes)
        last = events(await served.see(25, stream=True))
        assert last[-1] == "[DONE]"
        assert last[-2]["interaction"]["frame_index"] == 26
        assert (await served.client.get("/ready")).status_code == 200
