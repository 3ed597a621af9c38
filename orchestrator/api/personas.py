"""Persona keys of the known interaction servers, and personas of the pack by their own name."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from orchestrator.runtime.vocabulary import SessionConfig
from orchestrator.wire.errors import InvalidRequest

_KNOWN_KEYS: dict[str, tuple[str, str | None]] = {
    "DEFAULT_SYSTEM_PROMPT": ("default", None),
    "DEFAULT_SYSTEM_PROMPT_EN": ("default", "en"),
    "DEFAULT_SYSTEM_PROMPT_ZH": ("default", "zh"),
    "DEFAULT_SYSTEM_PROMPT_NO_DELEGATION": ("silent", None),
}


@dataclass(frozen=True, slots=True)
class PersonaChoice:
    """``None`` leaves things as they are."""

    persona: str | None = None
    language: str | None = None

    def applied_to(self, config: SessionConfig) -> SessionConfig:
        return replace(
            config,
            persona=self.persona if self.persona is not None else config.persona,
            language=self.language if self.language is not None else config.language,
        )


def choose_persona(key: str | None, personas: Set[str], languages: Set[str]) -> PersonaChoice:
    """:raises InvalidRequest: ``unknown_persona``, with the names that are known"""
    if key is None:
        return PersonaChoice()
    persona, language = _KNOWN_KEYS.get(key, (key, None))
    if persona not in personas or (language is not None and language not in languages):
        raise InvalidRequest(
            f"there is no persona {key!r}; known are {', '.join(sorted(personas))}",
            code="unknown_persona",
            param="persona",
        )
    return PersonaChoice(persona, language)
