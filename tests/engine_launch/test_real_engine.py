"""The launcher against the real engine: what the stand-in says, what the self-check learns, how it dies."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine_launch.client import EngineHttp, image_part
from engine_launch.liveness import Liveness, probe
from engine_launch.profile import load_profile, profile_names
from engine_launch.selfcheck import Status
from engine_launch.standin.script import default_script
from engine_launch.venv import engine_venv
from tests.engine_launch.real_engine import TAGS, RealEngine

pytestmark = pytest.mark.engine

JOYVL_SAMPLING: dict[str, Any] = {
    "temperature": 0.8,
    "top_p": 0.9,
    "top_k": 40,
    "repetition_penalty": 1.1,
    "presence_penalty": 1.5,
    "skip_special_tokens": False,
}


def conversation(turns: int) -> list[dict[str, Any]]:
    """Ticks with every kind of answer in them, so that penalties on seen tokens act."""
    said = [
        "</silence>",
        "</response> Something is moving in the picture now.",
        "</response> One moment, let me look that up </delegation> Which make of car fits what was shown?",
    ]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You watch a video."}]
    for turn in range(turns):
        messages.append(frame(turn))
        messages.append({"role": "assistant", "content": said[turn % len(said)]})
    return [*messages, frame(turns)]


def frame(second: int) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "text", "text": f"<{second}.0 seconds>"}, image_part(second, 96)],
    }


def answers(engine: RealEngine, messages: list[dict[str, Any]], count: int, **params: Any) -> Counter[str]:
    with EngineHttp(engine.url) as client, ThreadPoolExecutor(8) as pool:

        def ask(seed: int) -> str:
            reply = client.chat(
                engine.model, messages, **{**JOYVL_SAMPLING, "max_tokens": 200, "seed": seed, **params}
            )
            assert reply.status == 200, reply.text
            return reply.answer

        return Counter(pool.map(ask, range(count)))


@pytest.mark.parametrize("turns", [0, 6], ids=["nothing seen", "all tags seen"])
def test_a_sampled_run_is_silent_speaks_repeats_and_delegates(engine: RealEngine, turns: int) -> None:
    asked = 100
    said = answers(engine, conversation(turns), asked)
    assert set(said) <= {line.text for line in default_script().decide}
    spoken = {text: n for text, n in said.items() if text.startswith("</response>")}
    delegated = sum(n for text, n in spoken.items() if "</delegation>" in text)
    assert 0.5 <= said["</silence>"] / asked <= 0.78
    assert 0 < delegated / asked <= 0.15
    assert len(spoken) >= 4
    plain = [n for text, n in spoken.items() if "</delegation>" not in text]
    assert max(plain) / sum(plain) > 0.5, "one sentence leads, so that a run repeats itself"


def test_greedy_is_silent_and_the_same_every_time(engine: RealEngine) -> None:
    assert answers(engine, conversation(3), 5, temperature=0) == {"</silence>": 5}


def test_the_same_seed_says_the_same(engine: RealEngine) -> None:
    for seed in (3, 4):
        assert len(answers(engine, conversation(2), 4, seed=seed)) == 1


def test_a_long_prompt_with_a_seed_is_computed_in_steps(engine: RealEngine) -> None:
    """Unrepaired, vLLM on the CPU dies of it."""
    question = {"role": "user", "content": "What is this? " * 2000}
    with EngineHttp(engine.url) as client:
        said = [
            client.chat(engine.model, [question], **{**JOYVL_SAMPLING, "max_tokens": 8, "seed": 5})
            for _ in range(2)
        ]
    assert [reply.status for reply in said] == [200, 200]
    assert said[0].json["usage"]["prompt_tokens"] > 3 * 2048
    assert said[0].answer == said[1].answer


@pytest.mark.parametrize(("cue", "lines"), [("Summary", "summary"), ("Merge", "rollup")])
def test_a_summary_request_is_answered_with_prose(engine: RealEngine, cue: str, lines: str) -> None:
    request = {
        "role": "user",
        "content": [{"type": "text", "text": f"[{cue} request]\nDescribe what happened."}, image_part(1, 96)],
    }
    said = answers(engine, [request], 20, presence_penalty=1.0)
    assert set(said) <= {line.text for line in getattr(default_script(), lines)}
    assert not any(re.search(r"[<>]", text) for text in said)


def test_a_reply_can_be_continued_from_its_tag(engine: RealEngine) -> None:
    begun = [*conversation(1), {"role": "assistant", "content": "</response>"}]
    said = answers(engine, begun, 10, add_generation_prompt=False, continue_final_message=True)
    assert all(re.fullmatch(r" [A-Z][^<]+[.?]|.*</delegation>.*", text) for text in said), said


def test_an_answers_text_becomes_its_own_tokens_again(engine: RealEngine) -> None:
    """What replay lives on: the next prompt finds the generated tokens in the cache."""
    with EngineHttp(engine.url) as client:
        for line in default_script().decide:
            messages = conversation(1)
            before = client.tokenize(engine.model, messages=messages, add_generation_prompt=True)
            messages.append({"role": "assistant", "content": line.text})
            after = client.tokenize(engine.model, messages=messages, add_generation_prompt=False)
            assert before is not None and after is not None
            assert after[: len(before)] == before
            assert set(engine.facts.end_ids) & set(after[len(before) :])


def test_the_self_check_learns_the_engine(engine: RealEngine) -> None:
    checked = engine.self_check()
    assert checked.ok, checked.checks
    facts = checked.facts
    assert facts is not None
    assert (facts.context_tokens, facts.max_images, facts.block_tokens) == (131072, 1000, 32)
    assert facts.kv_tokens is not None and facts.kv_tokens > 100_000
    assert facts.reports_cached and facts.prefix_cache and facts.uuid_parts
    assert set(facts.tag_ids) == {"</silence>", "</response>", "</delegation>"}
    assert facts.decision_index == 0
    assert facts.decision_ids["silence"] == facts.tag_ids["</silence>"]
    assert facts.routes["content_parts"] == "present"
    assert facts.routes["features"] != "present", "on shm or unknown it may not be offered"


def test_answers_are_held_to_the_tags_where_that_is_asked_for(engine: RealEngine) -> None:
    from engine_launch.selfcheck import TagSpec, self_check

    pattern = r"(</silence>|</response>[\s\S]+)"
    checked = self_check(engine.url, model=engine.model, tags=TagSpec(TAGS.actions, pattern))
    assert checked.facts is not None and checked.facts.constrained, checked.checks


def test_a_foreign_address_leaves_the_image_cache_unknown(engine: RealEngine) -> None:
    from engine_launch.selfcheck import self_check

    checked = self_check(f"{engine.url}/v1")
    assert checked.facts is not None and checked.facts.image_cache == "unknown"
    assert checked.facts.routes["features"] == "not_probed"
    assert {check.name for check in checked.checks if check.status is Status.WARN} >= {"image cache"}


def test_frozen_is_wedged_killed_is_dead_and_it_comes_back(engine: RealEngine) -> None:
    if engine.profile is None:
        pytest.skip("a foreign engine is not killed")
    assert probe(engine.url, expected_s=30.0).liveness is Liveness.ALIVE
    engine.freeze()
    try:
        assert httpx.get(f"{engine.url}/health").status_code == 200, "health lies"
        assert probe(engine.url, deadline_s=3.0).liveness is Liveness.WEDGED
    finally:
        engine.thaw()
    assert probe(engine.url, expected_s=30.0, deadline_s=60.0).liveness is Liveness.ALIVE
    engine.kill()
    assert probe(engine.url).liveness is Liveness.DEAD
    engine.restart()
    assert probe(engine.url, expected_s=30.0).liveness is Liveness.ALIVE


@pytest.mark.parametrize("name", [name for name in profile_names() if not load_profile(name).duplex])
def test_the_engine_knows_every_flag_of_the_profiles(
    engine: RealEngine, name: str, known_flags: set[str]
) -> None:
    arguments = load_profile(name).arguments(engine.facts.version or "")
    assert {a for a in arguments if a.startswith("--")} <= known_flags


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    venv = engine_venv("cpu")
    command = [str(venv.python), "-m", "vllm.entrypoints.openai.api_server", "--help=all"]
    done = subprocess.run(
        command, env=venv.environment(os.environ), capture_output=True, text=True, timeout=300, check=True
    )
    return set(re.findall(r"--[a-z][a-z0-9-]+", done.stdout))


def test_small_limits_are_found(small_engine: Callable[..., RealEngine]) -> None:
    facts = small_engine(context=8192, images=32).facts
    assert (facts.context_tokens, facts.max_images) == (8192, 32)
