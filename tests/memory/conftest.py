"""Property tests here have no deadline for one example: the machine may be busy with an engine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
