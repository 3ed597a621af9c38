"""The served model's own tokenizer, where its file is at hand: it says how far estimates of texts are off."""

from __future__ import annotations

from pathlib import Path

from engine_launch.facts import EngineFacts
from memory.tokens import load_encoding, text_scale
from orchestrator.exits import Exit, SetupError
from prompts.pack import Pack


def learned_scale(named: Path | None, facts: EngineFacts, pack: Pack, persona: str, language: str) -> float:
    """Times its estimate that a text like the system prompt takes; 1 without a tokenizer.

    :param named: the file that the operator named; else the one beside the weights counts, if they are here
    :raises SetupError: the named file is none (``bad_tokenizer``)
    """
    file = named or Path(facts.weights or "") / "tokenizer.json"
    if named is None and not (facts.weights and file.is_file()):
        return 1.0
    try:
        encoding = load_encoding(file)
    except (OSError, ValueError) as error:
        if named is None:
            return 1.0
        raise SetupError(
            f"{named} can't be used as a tokenizer: {error}", "bad_tokenizer", Exit.USAGE
        ) from error
    return text_scale(encoding, pack.persona(persona, language))
