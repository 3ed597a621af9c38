"""How an engine's prompts can be sent as token ids: every id is the engine's own, and the way is tried first.

The ``features`` form is never sent from here: it takes down an engine whose image cache is ``shm``. Where it
is the only one, what a prompt's ids are is learned and held against the chat route's all the same, and the
route is tried without pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_launch.client import EngineHttp, Message, Reply, image_part
from engine_launch.facts import TokenFacts
from engine_launch.learn import TOKEN_ROUTE

SIDE = 224
ASKED: tuple[Message, ...] = (
    {"role": "system", "content": "You watch a video."},
    {"role": "user", "content": [{"type": "text", "text": "<0.0 seconds>"}]},
)
ANSWERED: tuple[Message, ...] = (*ASKED, {"role": "assistant", "content": "An answer."})
_DEFAULTS = (
    *("temperature", "top_p", "top_k", "min_p", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
_TOKENS = 4


class Unfit(Exception):
    """Why prompts can't go as ids."""


def token_facts(
    engine: EngineHttp,
    model: str,
    routes: Mapping[str, str],
    nonce: str,
    *,
    said: Sequence[str],
    spell: Sequence[int] = (),
) -> TokenFacts:
    """:param routes: see ``EngineFacts``
    :param said: answers such as the model gives
    :param spell: ids of tokens whose logprobs will be asked for
    :raises Unfit: there is no way, or it leads elsewhere than the chat route
    """
    kinds = [name for name in ("content_parts", "features") if routes.get(name) == "present"]
    if not kinds:
        raise Unfit("the engine has no token route that could be used")
    asked, answered = _ids(engine, model, ASKED), _ids(engine, model, ANSWERED)
    pad, image_text = _picture(engine, model)
    facts = TokenFacts(
        kind=kinds[0],
        image_text=image_text,
        pad=pad,
        asked=asked,
        answered=answered,
        asked_messages=ASKED,
        answered_messages=ANSWERED,
        defaults=_defaults(engine, model),
    )
    _try(engine, model, facts, said, nonce)
    _try_words(engine, model, facts)
    return facts.with_spelled({_spelled(engine, model, number): number for number in spell})


def _ids(
    engine: EngineHttp, model: str, messages: Sequence[Message], *, opened: bool = False
) -> tuple[int, ...]:
    ids = engine.tokenize(model, messages=messages, add_generation_prompt=opened)
    if not ids:
        raise Unfit("no /tokenize")
    return tuple(ids)


def _picture(engine: EngineHttp, model: str) -> tuple[int, str]:
    """The pad's id, and the text that becomes a picture's ids with one pad."""
    word = _ids(engine, model, [_user({"type": "text", "text": "."})])
    shown = _ids(engine, model, [_user(image_part(1, SIDE))])
    start = next((i for i, (a, b) in enumerate(zip(word, shown, strict=False)) if a != b), len(word))
    ends = zip(reversed(word[start:]), reversed(shown[start:]), strict=False)
    end = next((i for i, (a, b) in enumerate(ends) if a != b), 0)
    block = shown[start : len(shown) - end]
    pad = max(set(block), key=block.count, default=0)
    if block.count(pad) < _TOKENS:
        raise Unfit("a picture is not a run of one token")
    first = block.index(pad)
    run = block[first : first + block.count(pad)]
    if set(run) != {pad}:
        raise Unfit("a picture's pads are not one run")
    single = [*block[:first], pad, *block[first + len(run) :]]
    told = engine.send("POST", "/detokenize", {"model": model, "tokens": single})
    text = told.json.get("prompt")
    if told.status != 200 or not isinstance(text, str):
        raise Unfit("no /detokenize")
    return pad, text


def _user(*parts: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def _defaults(engine: EngineHttp, model: str) -> dict[str, Any]:
    """What the chat route samples with where a request says nothing."""
    body = {"model": model, "messages": [{"role": "user", "content": "."}], "max_tokens": 1}
    told = engine.send("POST", "/v1/chat/completions/render", body)
    sampling = told.json.get("sampling_params")
    if told.status != 200 or not isinstance(sampling, dict):
        raise Unfit("the engine does not tell its sampling defaults")
    return {name: sampling[name] for name in _DEFAULTS if sampling.get(name) not in (None, [])}


def _try(engine: EngineHttp, model: str, facts: TokenFacts, said: Sequence[str], nonce: str) -> None:
    """A conversation by the chat route, and the same by ids, must be one prompt with one answer."""
    uuids = iter(f"ids-{nonce}-{number}" for number in range(100))
    messages: list[Message] = [*ASKED]
    adds: list[int] = list(facts.asked)
    names: list[str] = []

    def shows(text: str) -> None:
        names.extend(pair := [next(uuids), next(uuids)])
        pictures = [image_part(len(names) + n, SIDE, uuid) for n, uuid in enumerate(pair)]
        message = _user({"type": "text", "text": text}, *pictures)
        words = _user({"type": "text", "text": text + 2 * facts.image_text})
        adds.extend(_added(engine, model, ANSWERED, facts.answered, words))
        messages.append(message)

    for number, answer in enumerate(said, start=1):
        reply = {"role": "assistant", "content": answer}
        messages.append(reply)
        adds.extend(_added(engine, model, ASKED, facts.asked, reply))
        shows(f"<{number}.0 seconds>")
    opened = _ids(engine, model, ASKED, opened=True)
    if opened[: len(facts.asked)] != facts.asked:
        raise Unfit("what opens an answer changes what was before it")
    adds.extend(opened[len(facts.asked) :])
    sampling = {"temperature": 0.0, "skip_special_tokens": False, "return_token_ids": True}
    by_chat = engine.chat(model, messages, max_tokens=8, **sampling)
    whole = by_chat.json.get("prompt_token_ids")
    if by_chat.status != 200 or not isinstance(whole, list):
        raise Unfit(f"a chat answer does not tell its prompt's ids: {by_chat.error}")
    if _single(whole, facts.pad) != adds:
        raise Unfit("a conversation's ids are not those of its messages")
    if facts.kind != "content_parts":
        return
    by_ids = _generate(engine, model, facts, adds, names, max_tokens=8)
    if by_ids.status != 200:
        raise Unfit(f"the token route refused pictures it has: {by_ids.error}")
    choice = (by_ids.json.get("choices") or [{}])[0]
    if by_ids.json.get("prompt_token_ids") != whole:
        raise Unfit("the token route makes another prompt of it than the chat route")
    if choice.get("text") != by_chat.answer:
        raise Unfit(f"the token route answers {choice.get('text')!r}, the chat route {by_chat.answer!r}")
    missing = _generate(engine, model, facts, adds, [*names[:-1], f"never-{nonce}"], max_tokens=1)
    if missing.status != 400:
        raise Unfit(f"the token route answered {missing.status} to a picture it does not have")


def _try_words(engine: EngineHttp, model: str, facts: TokenFacts) -> None:
    """Without pictures, which does no engine harm: the route must answer in text."""
    by_chat = engine.chat(model, ASKED, max_tokens=_TOKENS, skip_special_tokens=False)
    by_ids = _generate(engine, model, facts, _ids(engine, model, ASKED, opened=True), (), max_tokens=_TOKENS)
    choice = (by_ids.json.get("choices") or [{}])[0]
    if by_ids.status != 200 or choice.get("text") != by_chat.answer:
        raise Unfit(f"the token route does not answer in the chat route's text: {by_ids.error}")


def _added(
    engine: EngineHttp, model: str, before: Sequence[Message], ids: Sequence[int], message: Message
) -> tuple[int, ...]:
    grown = _ids(engine, model, [*before, message])
    if grown[: len(ids)] != tuple(ids):
        raise Unfit("a message changes the ids of those before it")
    return grown[len(ids) :]


def _single(ids: Sequence[int], pad: int) -> list[int]:
    """Every run of pads as one."""
    return [number for at, number in enumerate(ids) if number != pad or at == 0 or ids[at - 1] != pad]


def _generate(
    engine: EngineHttp,
    model: str,
    facts: TokenFacts,
    ids: Sequence[int],
    uuids: Sequence[str],
    **sampling: Any,
) -> Reply:
    params = {**facts.defaults, "temperature": 0.0, "skip_special_tokens": False, **sampling}
    body = {
        "model": model,
        "token_ids": ids,
        "sampling_params": params,
        "output_mode": "text",
        "return_token_ids": True,
    }
    if uuids:
        body["content_parts"] = [{"type": "image_url", "url": None, "uuid": uuid} for uuid in uuids]
    return engine.send("POST", TOKEN_ROUTE, body)


def _spelled(engine: EngineHttp, model: str, number: int) -> str:
    """How the engine writes a token in an answer's logprobs: it is made to say it."""
    opened = _ids(engine, model, ASKED, opened=True)
    facts = TokenFacts("content_parts", "", 0, (), (), (), ())
    told = _generate(engine, model, facts, opened, (), max_tokens=1, allowed_token_ids=[number], logprobs=1)
    choice = (told.json.get("choices") or [{}])[0]
    content = ((choice.get("logprobs") or {}).get("content") or [{}])[0]
    token = content.get("token")
    if told.status != 200 or not isinstance(token, str) or choice.get("token_ids") != [number]:
        raise Unfit(f"token {number} can't be spelled: {told.error}")
    return token
