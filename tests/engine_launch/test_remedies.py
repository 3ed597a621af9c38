"""From an engine's log to what its reader can do."""

from __future__ import annotations

import pytest

from engine_launch.remedies import remedy_for, telling_lines


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "smaller variant"),
        ("ValueError: To serve at least one request, 9.2 GiB KV cache is needed", "max-model-len"),
        ("ValueError: Free memory on device (3/24 GiB) is less than desired", "Another program uses the GPU"),
        ("OSError: [Errno 98] Address already in use", "--port"),
        ("api_server.py: error: unrecognized arguments: --enable-scale-out", "doesn't know a flag"),
        ("OSError: You are trying to access a gated repo.", "licence"),
        ("LocalEntryNotFoundError: Cannot find the requested files in offline mode", "--model"),
        ("RuntimeError: operator torchvision::nms does not exist", "built anew"),
        ("RuntimeError: Failed to infer device type", "standin-cpu"),
        ("OSError: [Errno 28] No space left on device", "shm_size"),
        ("something new", "last lines"),
    ],
)
def test_known_faults_have_a_remedy(line: str, words: str) -> None:
    assert words in remedy_for(
        ["starting", line, "force killing, SIGKILL"] if line != "something new" else [line]
    )


def test_the_first_error_is_shown_though_traces_follow_it() -> None:
    log = ["boot", "ValueError: the cause", *["  File x"] * 50, "Exception: WorkerProc initialization failed"]
    shown = telling_lines(log)
    assert shown[0] == "ValueError: the cause"
    assert shown[-1] == log[-1] and len(shown) == 13
