"""A scripted full-duplex engine behind a real WebSocket: ``/v1/realtime?duplex=1`` from the engine's side.

::

    async with DuplexEngine("pattern:LLSE", MINICPM_LIKE, time_scale=100) as engine:
        ... connect to engine.url ...
        engine.drop()                      # every socket breaks; sessions stay for the grace
        engine.sessions[0].units           # all that the model got
"""

from tests.fakes.duplex_engine.engine import DuplexEngine
from tests.fakes.duplex_engine.faults import Faults
from tests.fakes.duplex_engine.profiles import (
    AURA_LIKE,
    MINICPM_LIKE,
    MINICPM_VISION_LIKE,
    NEMOTRON_LIKE,
    PERSONAPLEX_LIKE,
    PROFILES,
    QWEN_OMNI_LIKE,
    EngineProfile,
)
from tests.fakes.duplex_engine.script import Act, Kind, Script, Unit, Voice
from tests.fakes.duplex_engine.session import EngineSession
from tests.fakes.duplex_engine.timing import ScaledClock

__all__ = [
    "AURA_LIKE",
    "MINICPM_LIKE",
    "MINICPM_VISION_LIKE",
    "NEMOTRON_LIKE",
    "PERSONAPLEX_LIKE",
    "PROFILES",
    "QWEN_OMNI_LIKE",
    "Act",
    "DuplexEngine",
    "EngineProfile",
    "EngineSession",
    "Faults",
    "Kind",
    "ScaledClock",
    "Script",
    "Unit",
    "Voice",
]
