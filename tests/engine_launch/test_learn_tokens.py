"""Prompts go as token ids only where the engine shows that they are the chat route's prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from engine_launch.client import Unreachable
from engine_launch.facts import EngineFacts
from engine_launch.selfcheck import Status, Unlike, self_check, tokens_again
from tests.engine_launch.real_engine import TAGS
from tests.engine_launch.scripted_engine import IdsEngine, refusal, serving
from tests.engine_launch.test_selfcheck import launched, line, run


@pytest.fixture
def engine() -> Iterator[IdsEngine]:
    scripted = IdsEngine()
    with serving(scripted):
        yield scripted


def test_the_way_is_learned_and_tried(engine: IdsEngine) -> None:
    checked = run(engine)
    assert line(checked, "token path").status is Status.OK, checked.checks
    facts = checked.facts
    assert facts is not None and facts.tokens is not None
    tokens = facts.tokens
    assert (tokens.kind, tokens.image_text, tokens.pad) == ("content_parts", "[#]", ord("#"))
    assert tokens.asked == tuple(engine.render(list(tokens.asked_messages), False))  # type: ignore[arg-type]
    assert tokens.answered == tuple(engine.render(list(tokens.answered_messages), False))  # type: ignore[arg-type]
    assert tokens.defaults == {"top_k": 20}
    assert tokens.spelled == {f"<{number}>": number for number in facts.decision_ids.values()}
    assert EngineFacts.from_dict(facts.to_dict()) == facts
    tried = [body for path, body in engine.requests if path.endswith("generate")]
    assert all("features" not in body for body in tried)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda e: e.routes.pop("/detokenize"), "/detokenize"),
        (lambda e: e.routes.pop("/v1/chat/completions/render"), "defaults"),
        (lambda e: e.routes.pop("/inference/v1/generate"), "refused"),
        (lambda e: setattr(e, "pads", 1), "run of one token"),
        (lambda e: setattr(e, "answers", ("yes", "no")), "answers 'no'"),
        (lambda e: setattr(e, "says", lambda path, ids: ids if "tok" in path else [1, *ids]), "not those"),
        (lambda e: setattr(e, "says", lambda path, ids: [*ids, 1] if "gen" in path else ids), "another"),
        (lambda e: setattr(e, "text", "tokens"), "answers None"),
        (lambda e: setattr(e, "says", lambda path, ids: [len(ids), *ids]), "changes"),
    ],
)
def test_whatever_differs_leaves_prompts_as_messages(
    engine: IdsEngine, break_it: Callable[[IdsEngine], object], says: str
) -> None:
    break_it(engine)
    checked = run(engine)
    told = line(checked, "token path")
    assert told.status is Status.WARN and says in told.detail, told
    assert checked.facts is not None and checked.facts.tokens is None


def test_an_engine_that_answers_to_pictures_it_never_saw_is_not_trusted(engine: IdsEngine) -> None:
    class Everything(set[str]):
        def __contains__(self, key: object) -> bool:
            return True

    known = engine.chat

    def chat(body: dict[str, object]) -> tuple[int, object]:
        engine.uuids = set(engine.uuids)
        answer = known(body)
        engine.uuids = Everything(engine.uuids)
        return answer

    engine.routes["/v1/chat/completions"] = chat
    assert "does not have" in line(run(engine), "token path").detail


@pytest.mark.parametrize(("cache", "kind"), [("lru", "features"), ("shm", None), (None, None)])
def test_features_are_for_lru_alone_and_never_sent_by_a_check(
    engine: IdsEngine, cache: str | None, kind: str | None
) -> None:
    only_features = {"GenerateRequest": {"properties": {"features": {}}}}
    schema = {"paths": {"/inference/v1/generate": {}}, "components": {"schemas": only_features}}
    engine.routes["/openapi.json"] = lambda _: (200, schema)
    facts = run(engine, launched=launched(cache) if cache else None).facts
    assert facts is not None and (facts.tokens.kind if facts.tokens else None) == kind
    tried = [body for path, body in engine.requests if path.endswith("generate")]
    assert not any(body.keys() & {"features", "content_parts"} for body in tried)
    if facts.tokens:
        assert set(facts.tokens.spelled.values()) == set(facts.decision_ids.values())


def test_an_engine_that_came_back_is_asked_again_for_that_alone(engine: IdsEngine) -> None:
    checked = self_check(engine.url, tags=TAGS)
    assert checked.facts is not None and checked.facts.tokens is not None
    assert tokens_again(engine.url, checked.facts, tags=TAGS) == checked.facts.tokens
    before = replace(checked.facts, end_ids=(7,))
    with pytest.raises(Unlike, match="another model"):
        tokens_again(engine.url, before, tags=TAGS)
    chat = engine.routes["/v1/chat/completions"]
    engine.routes["/v1/chat/completions"] = lambda body: (
        refusal("no priorities") if body.get("priority") else chat(body)
    )
    with pytest.raises(Unlike, match="--scheduling-policy priority"):
        tokens_again(engine.url, checked.facts, tags=TAGS)
    engine.routes["/v1/chat/completions"] = chat
    engine.answers = ("yes", "no")
    assert tokens_again(engine.url, checked.facts, tags=TAGS) is None


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/models", {"data": [{}]}),
        ("/openapi.json", {"paths": 5}),
        ("/tokenize", {"tokens": ["a", None]}),
        (
            "/v1/chat/completions",
            {"choices": [{"message": {"content": "."}}], "usage": {"prompt_tokens": "x"}},
        ),
        ("/metrics", 'vllm:cache_config_info{block_size="99999999999999999999",num_gpu_blocks="1"} 1.0'),
    ],
)
def test_answers_of_a_shape_that_no_engine_has_are_told_of(
    engine: IdsEngine, path: str, answer: object
) -> None:
    checked = self_check(engine.url, tags=TAGS)
    assert checked.facts is not None
    engine.routes[path] = lambda _: (200, answer)
    found = run(engine)
    assert found.facts is None and "shape that no engine has" in line(found, "engine").detail
    if path in ("/openapi.json", "/tokenize"):
        with pytest.raises(Unreachable):
            tokens_again(engine.url, checked.facts, tags=TAGS)
