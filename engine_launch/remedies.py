"""What the last lines of an engine's log mean, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"out of memory|OutOfMemoryError|No available memory for the cache",
        "The GPU's memory is too small or in use: free it, take a smaller variant of the profile, or lower"
        " max-model-len.",
    ),
    (
        r"tokens that can be stored in KV cache|KV cache is needed",
        "The KV cache can't hold max-model-len: take a smaller variant, or lower it in your own profile.",
    ),
    (
        r"Free memory on device .* is less than desired",
        "Another program uses the GPU: stop it, or lower gpu-memory-utilization.",
    ),
    (r"Address already in use", "Another program took the port: choose another with --port."),
    (
        r"unrecognized arguments|invalid choice|error: argument",
        "This vLLM doesn't know a flag of the profile: install the version that the requirements file names.",
    ),
    (
        r"declares no duplex_plugin",
        "This vllm-omni does not serve the model in full duplex: name an interpreter that has a later one in"
        " VIGIL_ENGINE_PYTHON.",
    ),
    (
        r"gated repo|Access to model|401 Client Error|RepositoryNotFound|is not a valid model identifier",
        "The model can't be downloaded: check its name, accept its licence on its page and log in, or name a"
        " folder with --model.",
    ),
    (
        r"offline mode|OfflineModeIsEnabled|LocalEntryNotFound|couldn't connect",
        "The model is not on this machine and can't be downloaded: name a folder that has it with --model.",
    ),
    (
        r"operator torchvision::\w+ does not exist|Could not load this library",
        "torch and torchvision are builds of different kinds: remove the engine's environment from the cache,"
        " it is built anew on the next start.",
    ),
    (
        r"No CUDA GPUs are available|Failed to infer device type|no NVIDIA driver",
        "No GPU is visible: check the driver (nvidia-smi), or use the profile standin-cpu.",
    ),
    (
        r"No space left on device|Bus error|SIGBUS",
        "Disk or /dev/shm is full: make room; in a container raise shm_size.",
    ),
    (r"Killed|SIGKILL|signal 9", "The system killed it, most likely for memory: close other programs."),
)
_UNKNOWN = "The last lines of its log say why."


_FAULT = re.compile(r"\b\w*(Error|Exception): (?!WorkerProc init|Engine core init)")


def remedy_for(log_lines: Sequence[str]) -> str:
    """The remedy for the first known fault that ``log_lines`` show; the surest signs are tried first."""
    for pattern, remedy in _KNOWN:
        if any(re.search(pattern, line, re.IGNORECASE) for line in log_lines):
            return remedy
    return _UNKNOWN


def telling_lines(log_lines: Sequence[str], last: int = 12) -> tuple[str, ...]:
    """The lines of a log that name a fault, then its last ones.

    An engine's first error stands far above its end: each of its processes adds a trace of its own.
    """
    faults = dict.fromkeys(line for line in log_lines[:-last] if _FAULT.search(line))
    return (*list(faults)[:5], *log_lines[-last:])
