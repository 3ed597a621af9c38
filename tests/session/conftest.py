"""Property tests here are bounded by examples, not by time: the machine may be busy."""

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
