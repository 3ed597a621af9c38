"""Sessions that a test leaves open end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.backends.native import harness


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    harness.OPENED.clear()
    yield
    for rig in harness.OPENED:
        await rig.finish()
