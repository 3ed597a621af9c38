"""A prompt pack for an engine whose weights mean nothing: what it answers is forced, token by token.

An engine with dummy weights (``--load-format dummy``) costs what the real one costs, but never says a tag or
ends an answer. Logit biases make it: each token of the answer has a little less than the one before it, and
the presence penalty takes from each what it had more, so that they come in order, once each. The prompts are
those of the family, and so is what is sampled from; a summary has as many words as one has.

- ``silent``: the silence tag and the end, as most answers of a watching model are
- ``spoken``: the response tag and three words, four tokens for whoever asks
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine_launch.client import EngineHttp
from orchestrator.engine_setup import Engine
from prompts.loader import load_pack
from prompts.pack import Pack, Sampling

ANSWERS = ("silent", "spoken")
WORDS = (" the", " a", " and", " of", " to", " is", " for", " with")
SUMMARY_TOKENS = 150
HIGHEST, STEP, PENALTY = 100.0, 0.6, 2.0
SUMMARY_STEP = 0.01
COLD = 0.05
"""Temperature: next to nothing is left to chance, and the sampler works as ever."""


class CannotForce(Exception):
    """The engine's vocabulary lacks what is to be said. The message says what."""


def forced(engine: Engine, family: str, folder: Path, answers: str, size: tuple[int, int]) -> Pack:
    """The pack of a family with forced answers, written to ``folder``.

    :param size: of the frames, which are shown as they are
    :raises CannotForce: see there
    """
    pack, ids = load_pack(family), engine.facts.tag_ids
    missing = [tag for tag in (pack.tags.silence, pack.tags.response) if tag not in ids]
    if missing or not engine.facts.end_ids:
        raise CannotForce(f"these are no single tokens of the engine: {', '.join(missing) or 'its end'}")
    end = engine.facts.end_ids[0]
    with EngineHttp(engine.url) as http:
        words = [_word(http, engine.facts.model, word) for word in WORDS]
    if answers == "silent":
        decide, most = [ids[pack.tags.silence], end], 2
    else:
        decide, most = [ids[pack.tags.response], *words[:3]], 4
    summary = [*_others(SUMMARY_TOKENS, words[0], {end, *ids.values()}), end]
    width, height = size
    made = folder / "pack"
    made.mkdir()
    (made / "model.toml").write_text(
        f"""base = "{family}"
family = "{pack.family}"

[pixels]
max = {max(pack.pixels.max, width * height)}

[sampling]
decide = {_sampling(pack.decide, decide, STEP, max_tokens=most, temperature=COLD)}
summary = {_sampling(pack.summary, summary, SUMMARY_STEP, temperature=0.0, repetition_penalty=1.0)}
"""
    )
    return load_pack(str(made))


def _word(http: EngineHttp, model: str, word: str) -> int:
    found = http.tokenize(model, prompt=word, add_special_tokens=False)
    if not found or len(found) != 1:
        raise CannotForce(f"{word!r} is not one token of the engine")
    return found[0]


def _others(count: int, first: int, never: set[int]) -> list[int]:
    """So many ordinary tokens: those that a vocabulary has beside a common word."""
    return [number for number in range(first, first + 2 * count) if number not in never][:count]


def _sampling(family: Sampling, tokens: Sequence[int], step: float, **changed: float) -> str:
    """The family's sampling as an inline table of TOML, so changed that these tokens come."""
    params = {"max_tokens": family.max_tokens, **family.params, **changed, "presence_penalty": PENALTY}
    biases = ", ".join(f'"{token}" = {HIGHEST - step * n:.3f}' for n, token in enumerate(tokens))
    told = ", ".join(f"{name} = {value}" for name, value in params.items())
    return f"{{ {told}, logit_bias = {{ {biases} }} }}"
