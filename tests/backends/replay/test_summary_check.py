from __future__ import annotations

import pytest

from orchestrator.backends.replay.summary_check import summary_fault
from tests.backends.replay.packs import GRAMMAR

GOOD = "0 s: a man enters. 12 s: he puts a red box (sign: EXIT 12) on the table. 40 s: he leaves."


@pytest.mark.parametrize(
    ("text", "finish", "fault"),
    [
        (GOOD, "stop", None),
        ("第0秒一个人进来。第12秒他把红盒子放在桌上。", "stop", None),
        ("", "stop", "empty"),
        (" \n ", "stop", "empty"),
        ("</silence>", "stop", "tags"),
        (GOOD + "<|im_end|>", "stop", "tags"),
        ("<Response> a man enters", "stop", "tags"),
        (GOOD, "length", "too_long"),
        ("a" + GOOD * 20, "stop", "repetition"),
        ("word " * 600, "stop", "repetition"),
        ("".join(f"At {i} s a man walks {i} steps. " for i in range(60)), "stop", "too_long"),
        ("He waves. " * 3 + GOOD, "stop", None),
        ("A list follows: - - - - - - - - and so on, then nothing else of note.", "stop", None),
    ],
)
def test_summary_faults(text: str, finish: str, fault: str | None) -> None:
    assert summary_fault(GRAMMAR, text, finish, max_chars=1000) == fault
