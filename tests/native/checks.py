"""What a response has to be, where one is required. Each function returns what is wrong, by name."""

from __future__ import annotations

import numpy as np

from orchestrator.offline.record import Answer

SILENT_RMS = 0.003


def wrong_with(answer: Answer) -> list[str]:
    """An answer that is complete and can be heard has nothing wrong with it."""
    samples = answer.samples
    wrong = [] if answer.status == "completed" else [f"it ended {answer.status}"]
    if not samples.size:
        return [*wrong, "it has no sound"]
    if not np.isfinite(samples).all():
        wrong.append("its sound is not finite")
    elif not samples.any():
        wrong.append("its sound is all zeros")
    elif float(np.sqrt(np.mean(samples**2))) < SILENT_RMS:
        wrong.append("its sound is silent")
    if not answer.spoke:
        wrong.append("the model did not choose to speak")
    return wrong
