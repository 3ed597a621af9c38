"""What the self-check says of engines that lack something, and that it never sends what could harm one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_launch.selfcheck import Check, SelfCheck, Status, TagSpec, self_check
from engine_launch.supervisor import Running
from tests.engine_launch.real_engine import TAGS, free_port
from tests.engine_launch.scripted_engine import SILENT, Answer, ScriptedEngine, refusal, serving

BOTH_ROUTES = {
    "paths": {"/inference/v1/generate": {}},
    "components": {"schemas": {"GenerateRequest": {"properties": {"content_parts": {}, "features": {}}}}},
}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    scripted = ScriptedEngine()
    with serving(scripted):
        yield scripted


def launched(cache: str = "shm", mib: int = 1, *, priority: bool = True) -> Running:
    return Running(
        name="x",
        profile="x",
        family="joyvl",
        pid=1,
        started=0.0,
        url="",
        model="m",
        version="0.32.0",
        digest="",
        image_cache=cache,
        image_cache_bytes=mib * 1024 * 1024,
        priority=priority,
        log="",
    )


def run(engine: ScriptedEngine, **options: Any) -> SelfCheck:
    return self_check(engine.url, **{"tags": TAGS, "launched": launched(), "deadline_s": 20.0, **options})


def line(checked: SelfCheck, name: str) -> Check:
    (found,) = [check for check in checked.checks if check.name == name]
    return found


def test_a_good_engine_passes_and_its_facts_are_kept(engine: ScriptedEngine) -> None:
    checked = run(engine)
    assert checked.ok, checked.checks
    facts = checked.facts
    assert facts is not None
    assert (facts.model, facts.version, facts.context_tokens, facts.max_images) == ("m", "0.32.0", 4096, 8)
    assert (facts.block_tokens, facts.kv_tokens) == (4, 400)
    assert (facts.image_cache, facts.image_cache_bytes) == ("shm", 1024 * 1024)
    assert facts.reports_cached and facts.prefix_cache and facts.uuid_parts and facts.priority
    assert facts.routes == {"content_parts": "absent", "features": "absent"}
    assert facts.tag_ids == {} and facts.decision_index == 2
    assert facts.decision_ids == {"silence": ord("s"), "response": ord("r"), "delegation": ord("d")}
    assert facts.end_ids == (ord("\n"),)
    assert all(check.remedy for check in checked.checks if check.status is not Status.OK)


def test_nobody_there() -> None:
    checked = self_check(f"http://127.0.0.1:{free_port()}")
    assert not checked.answered
    assert line(checked, "reachable").status is Status.FAIL and "vigil engine up" in checked.checks[0].remedy


def test_a_model_that_is_not_served(engine: ScriptedEngine) -> None:
    checked = run(engine, model="other")
    assert checked.facts is None and "Served models: m" in line(checked, "model").remedy


def test_a_web_server_that_is_no_engine(engine: ScriptedEngine) -> None:
    engine.routes = {}
    assert line(run(engine), "model").status is Status.FAIL


@pytest.mark.parametrize(
    "words", ["At most 0 image(s) may be provided in one prompt.", "m is not a multimodal model"]
)
def test_a_text_model(engine: ScriptedEngine, words: str) -> None:
    def text_only(body: dict[str, Any]) -> Answer:
        return refusal(words) if "image_url" in json.dumps(body) else engine.chat(body)

    engine.routes["/v1/chat/completions"] = text_only
    checked = run(engine)
    assert checked.facts is not None and checked.facts.max_images == 0
    assert line(checked, "images").remedy == "Serve a vision model."
    assert not checked.ok


def test_one_image_is_too_few_for_a_window(engine: ScriptedEngine) -> None:
    engine.limit = 1
    assert "limit-mm-per-prompt" in line(run(engine), "images").remedy


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 9, 63, 64])
def test_the_image_limit_of_an_engine_that_never_names_it(engine: ScriptedEngine, limit: int) -> None:
    def unnamed(body: dict[str, Any]) -> Answer:
        text = json.dumps(body)
        if text.count('"image_url"') > 2 * limit or '"image_url": null' in text:
            return refusal("too much")
        return engine.chat(body)

    engine.limit = 10**6
    engine.routes["/v1/chat/completions"] = unnamed
    facts = run(engine).facts
    assert facts is not None and facts.max_images == limit
    assert not facts.uuid_parts


def test_reuse_that_is_not_reported_is_seen_in_the_counters(engine: ScriptedEngine) -> None:
    hits = [0]

    def unreported(body: dict[str, Any]) -> Answer:
        status, answer = engine.chat(body)
        if status == 200:
            hits[0] += answer["usage"].pop("prompt_tokens_details")["cached_tokens"]
        return status, answer

    engine.routes["/v1/chat/completions"] = unreported
    engine.routes["/metrics"] = lambda _: (
        200,
        f'{engine.metrics}vllm:prefix_cache_hits_total{{m="x"}} {hits[0]}.0\n',
    )
    checked = run(engine)
    assert checked.facts is not None
    assert checked.facts.prefix_cache and not checked.facts.reports_cached
    assert "--enable-prompt-tokens-details" in line(checked, "cached tokens").remedy


def test_no_prefix_cache_fails(engine: ScriptedEngine) -> None:
    def forgetful(body: dict[str, Any]) -> Answer:
        engine.seen.clear()
        return engine.chat(body)

    engine.routes["/v1/chat/completions"] = forgetful
    checked = run(engine)
    assert not checked.ok and "--enable-prefix-caching" in line(checked, "prefix cache").remedy


def test_a_template_that_rewrites_the_past_fails(engine: ScriptedEngine) -> None:
    def numbered(body: dict[str, Any]) -> Answer:
        if "prompt" in body:
            return engine.tokenize(body)
        return 200, {"tokens": [len(body["messages"]), *engine.render(body["messages"], True)]}

    engine.routes["/tokenize"] = numbered
    assert line(run(engine), "prefix property").status is Status.FAIL


def test_an_engine_without_tokenize_passes_with_warnings(engine: ScriptedEngine) -> None:
    del engine.routes["/tokenize"]
    checked = run(engine)
    assert checked.ok
    assert line(checked, "prefix property").status is line(checked, "tags").status is Status.WARN


def test_single_token_tags_and_their_decision_point(engine: ScriptedEngine) -> None:
    ids = {tag: 1000 + i for i, tag in enumerate(TAGS.actions.values())}

    def with_tags(body: dict[str, Any]) -> Answer:
        tokens = engine.tokenize(body)[1]["tokens"]
        text = "".join(map(chr, tokens))
        for tag, token in ids.items():
            text = text.replace(tag, chr(token))
        return 200, {"tokens": [ord(c) for c in text]}

    engine.routes["/tokenize"] = with_tags
    checked = run(engine)
    facts = checked.facts
    assert facts is not None and facts.tag_ids == ids and facts.decision_index == 0
    assert facts.decision_ids == dict(zip(TAGS.actions, ids.values(), strict=True))
    assert line(checked, "tags").status is Status.OK


PATTERN = r"(<silence>|<response>[\s\S]+)"


def test_constrained_answers_are_asked_for_only_where_they_are_used(engine: ScriptedEngine) -> None:
    facts = run(engine).facts
    assert facts is not None and not facts.constrained
    assert not [body for _, body in engine.requests if "structured_outputs" in body]


@pytest.mark.parametrize(
    ("says", "constrained", "detail"),
    [
        (lambda regex: regex.strip("()").split("|")[0], True, "hold"),
        (lambda regex: "<silence>", False, "ignored"),  # as the model would have said on its own
        (lambda regex: "7xqz" if "qz" in regex else "hello", False, "ignored"),
        (lambda regex: None, False, "refused"),
    ],
)
def test_an_engine_that_holds_answers_to_a_pattern_is_told_from_others(
    engine: ScriptedEngine, says: Callable[[str], str | None], constrained: bool, detail: str
) -> None:
    plain = engine.routes["/v1/chat/completions"]

    def chat(body: dict[str, Any]) -> Answer:
        held = body.get("structured_outputs")
        if held is None:
            return plain(body)
        said = says(held["regex"])
        if said is None:
            return refusal("structured_outputs is not supported")
        return 200, {"choices": [{"message": {"content": said}}], "usage": {"prompt_tokens": 1}}

    engine.routes["/v1/chat/completions"] = chat
    checked = run(engine, tags=TagSpec(TAGS.actions, PATTERN))
    assert checked.facts is not None and checked.facts.constrained is constrained
    told = line(checked, "constrained answers")
    assert told.status is (Status.OK if constrained else Status.WARN) and detail in told.detail


def test_two_tags_without_delegation_are_enough(engine: ScriptedEngine) -> None:
    facts = run(engine, tags=TagSpec({"silence": "<no>", "response": "<yes>"})).facts
    assert facts is not None and set(facts.decision_ids) == {"silence", "response"}


@pytest.mark.parametrize(
    ("cache", "features"), [("shm", "not_probed"), ("lru", "present"), (None, "not_probed")]
)
def test_the_features_route_is_never_probed_and_offered_with_lru_only(
    engine: ScriptedEngine, cache: str | None, features: str
) -> None:
    engine.routes["/openapi.json"] = lambda _: (200, BOTH_ROUTES)
    facts = run(engine, launched=launched(cache) if cache else None).facts
    assert facts is not None
    assert facts.routes == {"content_parts": "present", "features": features}
    assert not any("generate" in path or "features" in body for path, body in engine.requests)


def test_a_shared_memory_smaller_than_the_cache_fails(engine: ScriptedEngine, tmp_path: Path) -> None:
    checked = run(engine, launched=launched(mib=10**9))
    assert "shm_size" in line(checked, "image cache").remedy
    assert not checked.ok


@pytest.mark.parametrize(
    ("version", "taken", "ours", "counts"),
    [
        ("0.32.0", True, True, True),
        ("0.32.0", True, False, False),
        ("0.32.0", True, None, False),
        ("0.25.1", True, None, True),
        ("0.25.1", False, None, False),
        ("0.25.1", False, True, False),
    ],
)
def test_priority_is_sent_wherever_it_is_taken_and_believed_only_where_it_is_known(
    engine: ScriptedEngine, version: str, taken: bool, ours: bool | None, counts: bool
) -> None:
    def chat(body: dict[str, Any]) -> Answer:
        return refusal("no priorities") if body.get("priority") and not taken else engine.chat(body)

    engine.routes["/v1/chat/completions"] = chat
    engine.routes["/version"] = lambda _: (200, {"version": version})
    checked = run(engine, launched=None if ours is None else launched(priority=ours))
    assert checked.facts is not None and checked.facts.priority is taken
    assert (line(checked, "priority").status is Status.OK) is counts


def test_an_engine_that_stops_answering_is_named_wedged(engine: ScriptedEngine) -> None:
    asked = [0]

    def stops(body: dict[str, Any]) -> Answer:
        asked[0] += 1
        return engine.chat(body) if asked[0] < 3 else SILENT

    engine.routes["/v1/chat/completions"] = stops
    engine.routes["/metrics"] = lambda _: (200, "")
    checked = run(engine, deadline_s=2.0)
    assert checked.facts is None
    assert "wedged" in line(checked, "engine").detail


def test_the_context_of_an_engine_that_tells_it_only_when_refusing(engine: ScriptedEngine) -> None:
    def chat(body: dict[str, Any]) -> Answer:
        if body["max_tokens"] > 4096:
            return refusal("This model's maximum context length is 4096 tokens. ...")
        return engine.chat(body)

    engine.routes["/v1/models"] = lambda _: (200, {"data": [{"id": "m"}]})
    engine.routes["/v1/chat/completions"] = chat
    facts = run(engine).facts
    assert facts is not None and facts.context_tokens == 4096
