"""The fold runs small and large engines for a long time within their limits."""

from __future__ import annotations

import pytest

from tests.memory.driver import Driver, blind

ENGINES = {
    "large": {"chunk_frames": 100, "max_images": 256, "context_tokens": 131072},
    "context 8192, 32 images": {"chunk_frames": 100, "max_images": 32, "context_tokens": 8192},
    "context 12000, 8 images": {"chunk_frames": 100, "max_images": 8, "context_tokens": 12000},
}


@pytest.mark.parametrize("limits", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("summary_after", [1, 20])
def test_six_hundred_ticks(limits: dict[str, int], summary_after: int) -> None:
    """No plan breaks a limit, no shown frame is lost sight of, and the log alone gives the same memory."""
    driver = Driver(**limits)
    seen: list[int] = []
    for _ in range(600):
        plan = driver.tick()
        seen.append(driver.ms)
        forgotten = driver.memory.parts.history.forgotten_before_ms or 0
        assert not blind(plan, seen, forgotten)
        driver.background(summary_after, fails=lambda n: n % 3 == 0)
    assert driver.rebuilt().fingerprint() == driver.memory.fingerprint()
