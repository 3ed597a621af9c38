"""What a session's model is to be told and shown, as facts: at its opening, in an update, after a restart."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace

from memory.budget import LimitsTooSmall
from memory.facts import MemoryOpened, PackSet, PersonaSet, PixelsSet
from memory.render import RENDERER
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.session.backend import SessionConfig
from orchestrator.wire.errors import EngineFault, InvalidRequest
from prompts.pack import Pack

_log = logging.getLogger(__name__)


class SessionSettings:
    """Checks configurations against the pack and logs what they change."""

    def __init__(self, journal: Journal, pack: Pack, options: ReplayOptions) -> None:
        self._journal = journal
        self._pack = pack
        self._options = options

    def open(self, config: SessionConfig) -> None:
        """The first fact. Raises ``InvalidRequest``, or ``EngineFault`` where the engine is too small."""
        self._check(config)
        persona, language = self._voice(config)
        opened = MemoryOpened(
            pack=self._pack.family,
            pack_digest=self._pack.digest,
            renderer=RENDERER,
            persona=persona,
            language=language,
            instructions=config.instructions,
            limits=asdict(self._options.window),
            jitter=self._options.jitter,
            max_pixels=self._pixels(config),
            text_scale=self._options.text_scale,
        )
        try:
            self._journal.write(opened)
        except LimitsTooSmall as small:
            raise EngineFault(str(small), code=small.code) from small

    def update(self, config: SessionConfig) -> None:
        """Log what ``config`` changes, all of it or nothing. Raises ``InvalidRequest``."""
        self._check(config)
        former = self._journal.memory.settings.max_pixels
        try:
            self._apply(config)
        except LimitsTooSmall as small:
            if self._journal.memory.settings.max_pixels != former:
                self._journal.write(PixelsSet(max_pixels=former))
            raise InvalidRequest(str(small), code=small.code) from small

    def known(self, config: SessionConfig) -> SessionConfig:
        """The configuration of a session that goes on, without what the pack no longer has."""
        try:
            self._check(config)
        except InvalidRequest as unknown:
            _log.warning("a session goes on with defaults: %s", unknown.message)
            return replace(config, persona=None, language=None, max_pixels=None)
        return config

    def take_over(self, config: SessionConfig) -> None:
        """After a restart: log what is set up otherwise than when the log ended. Raises ``EngineFault``."""
        try:
            if self._journal.memory.settings.pack.digest != self._pack.digest:
                persona, language = self._voice(config)
                self._journal.write(
                    PackSet(
                        pack=self._pack.family,
                        pack_digest=self._pack.digest,
                        persona=persona,
                        language=language,
                        limits=asdict(self._options.window),
                    )
                )
            self._apply(config)
        except LimitsTooSmall as small:
            raise EngineFault(str(small), code=small.code) from small

    def _apply(self, config: SessionConfig) -> None:
        settings, pixels = self._journal.memory.settings, self._pixels(config)
        if settings.max_pixels != pixels:
            self._journal.write(PixelsSet(max_pixels=pixels))
        persona, language = self._voice(config)
        told = (settings.persona, settings.language, settings.instructions)
        if told != (persona, language, config.instructions):
            self._journal.write(
                PersonaSet(persona=persona, instructions=config.instructions, language=language)
            )

    def _voice(self, config: SessionConfig) -> tuple[str, str]:
        return config.persona or self._options.persona, config.language or self._options.language

    def _pixels(self, config: SessionConfig) -> int | None:
        return self._options.max_pixels if config.max_pixels is None else config.max_pixels

    def _check(self, config: SessionConfig) -> None:
        persona, language = self._voice(config)
        if language not in self._pack.languages:
            known = ", ".join(self._pack.languages)
            raise InvalidRequest(f"no language {language!r}; use one of: {known}", param="language")
        if persona not in self._pack.personas:
            known = ", ".join(sorted(self._pack.personas))
            raise InvalidRequest(
                f"no persona {persona!r}; use one of: {known}", code="unknown_persona", param="persona"
            )
        bounds = self._pack.pixels
        if config.max_pixels is not None and not bounds.min <= config.max_pixels <= bounds.max:
            raise InvalidRequest(
                f"max_pixels lies between {bounds.min} and {bounds.max} here",
                code="invalid_max_pixels",
                param="max_pixels",
            )
