"""The self-check: real requests that show what an engine can do and whether replay will be cheap on it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from engine_launch import learn, learn_tokens
from engine_launch.client import EngineHttp, Misunderstood, NoAnswer, Unreachable, understood
from engine_launch.facts import EngineFacts, TokenFacts
from engine_launch.liveness import probe
from engine_launch.supervisor import Running

SHM = Path("/dev/shm")
MIB = 1024 * 1024
LEAST_IMAGES = 2


class Status(StrEnum):
    """OK, WARN: works, but something is lost; FAIL: replay can't run, or not at its price."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table. :param remedy: what to change; empty for ``ok``"""

    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TagSpec:
    """The marks of a model family, as plain values.

    :param actions: action (``silence``, ``response``, ``delegation``) -> tag
    :param pattern: regular expression that answers are to be held to, if they are
    """

    actions: Mapping[str, str]
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """:param facts: what was learned; None when the engine gave no real answer"""

    facts: EngineFacts | None
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.status is not Status.FAIL for check in self.checks)

    @property
    def answered(self) -> bool:
        return self.facts is not None


class Unlike(Exception):
    """An engine that came back is not the one that was known."""


@dataclass(slots=True)
class _Run:
    """The state of one self-check."""

    engine: EngineHttp
    launched: Running | None
    facts: EngineFacts
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    checks: list[Check] = field(default_factory=list)

    @property
    def number(self) -> int:
        """A picture that no earlier check has sent."""
        return int(self.nonce[:6], 16)

    def note(self, name: str, status: Status, detail: str, remedy: str = "") -> None:
        self.checks.append(Check(name, status, detail, remedy))


def self_check(
    url: str,
    *,
    model: str | None = None,
    tags: TagSpec | None = None,
    launched: Running | None = None,
    api_key: str | None = None,
    deadline_s: float = 60.0,
    words_only: bool = False,
) -> SelfCheck:
    """Check the engine at ``url`` with real requests.

    :param model: served name; the only one served when omitted
    :param tags: marks whose tokens are to be learned
    :param launched: how we started it, if we did: image cache and scheduling can't be asked for
    :param deadline_s: of each request
    :param words_only: it is to answer in words, not to watch: nothing is asked of it about images
    """
    with EngineHttp(url, api_key=api_key, deadline_s=deadline_s) as engine:
        run = _Run(engine, launched, EngineFacts(model=model or ""))
        try:
            with understood():
                if not _answers(run, model):
                    return SelfCheck(None, tuple(run.checks))
                _limits(run)
                if words_only:
                    return SelfCheck(run.facts, tuple(run.checks))
                _images(run)
                _image_cache(run)
                if run.facts.max_images >= LEAST_IMAGES:
                    _reuse(run)
                    _uuid(run)
                _prefix(run, tags)
                _tags(run, tags)
                _constrained(run, tags)
                _priority(run)
                _routes(run)
                _tokens(run, tags)
        except Unreachable as error:
            gone = "" if isinstance(error, Misunderstood) else "went away during the check: "
            run.note("engine", Status.FAIL, f"{gone}{error}", "See the engine's log.")
            return SelfCheck(None, tuple(run.checks))
        except NoAnswer as error:
            state = probe(url, run.facts.model, deadline_s=min(deadline_s, 15.0), api_key=api_key)
            run.note(
                "engine",
                Status.FAIL,
                f"no answer within {deadline_s:g} s ({error}); it is {state.liveness}: {state.detail}",
                "Wedged or dead: start it again. Slow: wait until it is idle and check again.",
            )
            return SelfCheck(None, tuple(run.checks))
        return SelfCheck(run.facts, tuple(run.checks))


def _answers(run: _Run, wanted: str | None) -> bool:
    """The model is there and answers. Everything else depends on it."""
    url = run.engine.base_url
    try:
        cards = run.engine.models()
    except Unreachable as error:
        run.note(
            "reachable",
            Status.FAIL,
            f"nothing answers at {url}: {error}",
            "Start it (vigil engine up PROFILE), or correct the address.",
        )
        return False
    served = [str(card["id"]) for card in cards]
    if not served:
        run.note(
            "model", Status.FAIL, f"{url} lists no model", "Name the address of an OpenAI-compatible engine."
        )
        return False
    run.note("reachable", Status.OK, url)
    if wanted is not None and wanted not in served:
        known = ", ".join(served)
        run.note("model", Status.FAIL, f"{wanted} is not served there", f"Served models: {known}.")
        return False
    card = next(card for card in cards if wanted in (None, card["id"]))
    weights = str(card["root"]) if card.get("root") else None
    run.facts = replace(run.facts, model=str(card["id"]), weights=weights)
    run.note("model", Status.OK, run.facts.model)
    reply = run.engine.chat(run.facts.model, [learn.user(".")])
    if reply.status != 200:
        run.note("answer", Status.FAIL, f"status {reply.status}: {reply.error}", "See the engine's log.")
        return False
    run.note("answer", Status.OK, f"one token in {reply.seconds * 1000:.0f} ms")
    version = run.engine.send("GET", "/version").json.get("version")
    run.facts = replace(
        run.facts,
        version=str(version) if version else None,
        context_tokens=learn.context_tokens(run.engine, card),
    )
    return True


def _limits(run: _Run) -> None:
    facts = run.facts
    if facts.context_tokens:
        run.note("context", Status.OK, f"{facts.context_tokens} tokens")
    else:
        run.note("context", Status.FAIL, "the engine doesn't tell its context length", "Serve it with vLLM.")
    block, kv = learn.block_and_kv_tokens(learn.cache_labels(run.engine.metrics()))
    run.facts = replace(facts, block_tokens=block, kv_tokens=kv)
    if block:
        run.note("KV cache", Status.OK, f"{kv or 'unknown'} tokens in blocks of {block}")
    else:
        run.note("KV cache", Status.WARN, "size unknown: no /metrics of vLLM", "Let this host read /metrics.")


def _images(run: _Run) -> None:
    images = learn.image_limit(run.engine, run.facts.model, run.nonce)
    run.facts = replace(run.facts, max_images=images)
    if images >= LEAST_IMAGES:
        run.note("images", Status.OK, f"{images} in one prompt")
    elif images:
        run.note(
            "images",
            Status.FAIL,
            f"only {images} in one prompt: a window needs at least {LEAST_IMAGES}",
            "Raise --limit-mm-per-prompt.",
        )
    else:
        run.note("images", Status.FAIL, "the model takes no images", "Serve a vision model.")


def _image_cache(run: _Run) -> None:
    launched = run.launched
    if launched is None:
        run.note(
            "image cache",
            Status.WARN,
            "kind unknown: not started from a profile here",
            "Start engines from a profile; on a GPU leave --mm-processor-cache-type at lru.",
        )
        return
    run.facts = replace(
        run.facts, image_cache=launched.image_cache, image_cache_bytes=launched.image_cache_bytes
    )
    size = f"{launched.image_cache}, {launched.image_cache_bytes // MIB} MiB"
    if launched.image_cache != "shm":
        run.note("image cache", Status.OK, size)
        return
    room = shutil.disk_usage(SHM)
    if room.total < launched.image_cache_bytes:
        run.note(
            "image cache",
            Status.FAIL,
            f"{size}, but /dev/shm holds {room.total // MIB} MiB",
            "Raise shm_size (or lower image_cache.mib): a full /dev/shm kills the engine.",
        )
    elif room.free < room.total // 20:
        run.note("image cache", Status.WARN, f"{size}; /dev/shm is nearly full", "Free some of /dev/shm.")
    else:
        run.note("image cache", Status.OK, f"{size}; /dev/shm holds {room.total // MIB} MiB")


def _reuse(run: _Run) -> None:
    """Two images sent twice must come from the cache the second time."""
    seen = learn.reuse(run.engine, run.facts.model, run.facts.block_tokens, run.nonce, run.number)
    if isinstance(seen, str):
        run.note("prefix cache", Status.FAIL, f"two images were refused: {seen}", "See the engine's log.")
        return
    run.facts = replace(run.facts, reports_cached=seen.reported, prefix_cache=seen.cached > 0)
    if not seen.cached:
        silent = "" if seen.reported else " (and the engine doesn't report cached tokens)"
        run.note(
            "prefix cache",
            Status.FAIL,
            f"two images sent twice: nothing was reused{silent}",
            "Start it with --enable-prefix-caching and --enable-prompt-tokens-details.",
        )
        return
    detail = f"two images sent twice: {seen.cached} tokens reused"
    if seen.expected is not None and seen.cached < seen.expected:
        run.note(
            "prefix cache",
            Status.WARN,
            f"{detail} of {seen.expected}",
            "Give the engine more KV cache memory.",
        )
    else:
        run.note("prefix cache", Status.OK, detail)
    if seen.reported:
        run.note("cached tokens", Status.OK, "reported with every answer")
    else:
        run.note(
            "cached tokens",
            Status.WARN,
            "not reported: reuse can't be checked tick by tick",
            "Start it with --enable-prompt-tokens-details.",
        )


def _uuid(run: _Run) -> None:
    works = learn.uuid_parts(run.engine, run.facts.model, run.nonce)
    run.facts = replace(run.facts, uuid_parts=works)
    if works:
        run.note("image uuids", Status.OK, "a frame is sent once")
    else:
        run.note("image uuids", Status.WARN, "every frame is sent again each tick", "Use a newer vLLM.")


def _prefix(run: _Run, tags: TagSpec | None) -> None:
    """A grown conversation must begin with the very tokens of the shorter one."""
    answers = [f"{tag} text" for tag in tags.actions.values()] if tags else ["An answer.", "Another."]
    holds = learn.prefix_holds(run.engine, run.facts.model, answers)
    if holds is None:
        run.note("prefix property", Status.WARN, "can't be checked: no /tokenize", "Serve it with vLLM.")
    elif holds:
        run.note("prefix property", Status.OK, "a longer conversation begins with the tokens of the shorter")
    else:
        run.note(
            "prefix property",
            Status.FAIL,
            "the chat template changes earlier turns when a conversation grows",
            "Give the engine a template that doesn't (--chat-template), with thinking turned off.",
        )


def _tags(run: _Run, tags: TagSpec | None) -> None:
    if tags is None:
        return
    point = learn.tag_point(run.engine, run.facts.model, tags.actions)
    if point is None:
        run.note("tags", Status.WARN, "their tokens can't be learned: no /tokenize", "Serve it with vLLM.")
        return
    run.facts = replace(
        run.facts,
        tag_ids=dict(point.ids),
        decision_index=point.index,
        decision_ids=dict(point.choices),
        end_ids=point.end,
    )
    single = sorted(point.ids)
    detail = f"{', '.join(single) or 'none'} in one token; decided at token {point.index}"
    if point.index == 0:
        run.note("tags", Status.OK, detail)
    else:
        run.note(
            "tags",
            Status.WARN,
            f"{detail}: they share their first token, so no speak threshold can be set",
            "Nothing to do unless you need the threshold: then serve a model trained with action marks.",
        )


def _constrained(run: _Run, tags: TagSpec | None) -> None:
    """Asked only where it will be used. It also makes the engine compile the pattern before any tick."""
    if tags is None or tags.pattern is None:
        return
    fault = learn.not_constrained(run.engine, run.facts.model, tags.pattern)
    run.facts = replace(run.facts, constrained=fault is None)
    if fault is None:
        run.note("constrained answers", Status.OK, "structured outputs hold an answer to the tags")
    else:
        run.note(
            "constrained answers", Status.WARN, fault, "Leave decision.constrain off, or use a newer vLLM."
        )


def _priority(run: _Run) -> None:
    """It is sent wherever it is taken. Newer engines take one and ignore it: only the launch, or an older
    engine's refusal, tells."""
    taken = learn.accepts_priority(run.engine, run.facts.model)
    refuses_when_off = (run.facts.version or "").startswith("0.") and _minor(run.facts.version) < 26
    run.facts = replace(run.facts, priority=taken)
    if taken and (run.launched.priority if run.launched else refuses_when_off):
        run.note("priority", Status.OK, "live ticks are scheduled before background work")
    else:
        unseen = taken and run.launched is None
        why = "taken; whether it counts can't be seen from outside" if unseen else "not in use"
        run.note("priority", Status.WARN, why, "Start it with --scheduling-policy priority, from a profile.")


def _minor(version: str | None) -> int:
    parts = (version or "").split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def _routes(run: _Run) -> None:
    routes = learn.token_routes(run.engine, run.facts.image_cache)
    run.facts = replace(run.facts, routes=routes)
    run.note("token routes", Status.OK, ", ".join(f"{name} {state}" for name, state in routes.items()))


def _tokens(run: _Run, tags: TagSpec | None) -> None:
    """The way that a tick's prompt will go is gone once, with the chat route beside it."""
    facts = run.facts
    if not facts.uuid_parts:
        return
    try:
        tokens = _token_facts(run.engine, facts, tags, run.nonce)
    except learn_tokens.Unfit as unfit:
        run.note(
            "token path",
            Status.WARN,
            f"{unfit}: each tick's whole prompt is rendered anew",
            "Use a newer vLLM with --enable-scale-out, from a profile.",
        )
        return
    run.facts = replace(facts, tokens=tokens)
    detail = f"prompts go as ids with {tokens.kind.replace('_', ' ')}"
    run.note("token path", Status.OK, f"{detail}: the same prompt as by the chat route")


def tokens_again(
    url: str,
    known: EngineFacts,
    *,
    tags: TagSpec | None = None,
    launched: Running | None = None,
    api_key: str | None = None,
    deadline_s: float = 60.0,
) -> TokenFacts | None:
    """``EngineFacts.tokens`` of an engine that was away and is back.

    Raises :class:`Unreachable` or :class:`NoAnswer` where it is gone again, :class:`Unlike` where what came
    back takes no priorities any more, so that it would refuse every request, or reads the tags as other
    tokens: what was learned of it is wrong now.
    """
    with EngineHttp(url, api_key=api_key, deadline_s=deadline_s) as engine, understood():
        if known.priority and learn.refuses_priority(engine, known.model):
            raise Unlike(f"{url} takes no priorities any more: start it with --scheduling-policy priority")
        learned = known.tag_ids, known.decision_index, known.decision_ids, known.end_ids
        point = learn.tag_point(engine, known.model, tags.actions) if tags and any(learned) else None
        if point is not None and (point.ids, point.index, point.choices, point.end) != learned:
            raise Unlike(f"{url} reads the tags as other tokens than before: another model is served there")
        routes = learn.token_routes(engine, launched.image_cache if launched else "unknown")
        try:
            return _token_facts(engine, replace(known, routes=routes), tags, secrets.token_hex(8))
        except learn_tokens.Unfit:
            return None


def _token_facts(engine: EngineHttp, facts: EngineFacts, tags: TagSpec | None, nonce: str) -> TokenFacts:
    said = list(tags.actions.values()) if tags else ["An answer.", "Another."]
    spell = tuple(facts.decision_ids.values())
    return learn_tokens.token_facts(engine, facts.model, facts.routes, nonce, said=said, spell=spell)
