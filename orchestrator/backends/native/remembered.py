"""What a native session remembers: a fold over its log of facts, from which engine sessions are seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memory import facts as f
from memory.seed import seed_text
from memory.spoken import SpokenMemory
from orchestrator.backends.native.facts import NativeFact
from orchestrator.session.backend import FactLog, SessionConfig
from prompts.conversation import telling
from prompts.loader import PackError
from prompts.native import NativeProfile, Seed

DEFAULT_LANGUAGE = "en"


class Remembered:
    """
    :param now_ms: of the session's media clock
    :param summarizer: somebody writes the summaries that memory wants, and is told of news by ``on_fact``
    """

    def __init__(
        self, log: FactLog, profile: NativeProfile, now_ms: Callable[[], int], *, summarizer: bool
    ) -> None:
        self.on_fact: Callable[[], None] = lambda: None
        self.on_frames: Callable[[Sequence[bytes], int], None] = lambda frames, ms: None
        self._log = log
        self._profile = profile
        self._now_ms = now_ms
        self._summarizer = summarizer
        self.memory = SpokenMemory()
        self.persona: str | None = None
        self._begun = False
        self.unanswered: dict[str, str] = {}
        """Questions that were with a solver when the log ended, by their delegation."""

    def restore(self, history: Sequence[f.AnyFact]) -> None:
        """Fold what the log already holds."""
        for fact in history:
            self.memory.apply(fact)
            self._begun = self._begun or isinstance(fact, f.SpokenOpened)
            if isinstance(fact, f.DelegationBegun):
                self.unanswered[fact.delegation_id] = fact.question
            elif isinstance(fact, f.DelegationDone):
                self.unanswered.pop(fact.delegation_id, None)

    @property
    def begun(self) -> bool:
        """The log has a beginning."""
        return self._begun

    def open(self, config: SessionConfig) -> None:
        """Begin the log, if it is a fresh one."""
        self.persona = config.instructions
        if not self._begun:
            self._begun = True
            self.write(
                f.SpokenOpened(
                    family=self._profile.family,
                    digest=self._profile.digest,
                    language=language_of(config.language),
                    seed_tokens=max(1, self._profile.horizon.seed_max_tokens),
                    summarizer=self._summarizer,
                )
            )

    def write(self, fact: f.AnyFact) -> None:
        """Fold and log a fact; one that memory refuses is not logged."""
        self.memory.apply(fact)
        self._log.append(fact.kind, f.fact_data(fact))
        self.on_fact()

    def note(self, fact: NativeFact) -> None:
        """Log a fact that memory does not fold."""
        self._log.append(fact.kind, fact.data())

    async def flush(self) -> None:
        await self._log.flush()

    @property
    def now_ms(self) -> int:
        """Of the session's media clock."""
        return self._now_ms()

    # --- Seeds ----------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self.memory.revision

    def seed(self) -> str:
        horizon = self._profile.horizon
        persona = self.persona if horizon.seed is Seed.INSTRUCTIONS else None
        return seed_text(self.memory, horizon.seed_max_tokens, persona, self._now_ms())

    @property
    def empty(self) -> bool:
        """Nothing was said yet."""
        return self.memory.empty

    # --- what happens ---------------------------------------------------------------------------------

    def asked(self, item_id: str, text: str) -> None:
        self.write(f.QuerySet(query_id=item_id, text=text, media_time_ms=self._now_ms()))

    def said(self, item_id: str, text: str) -> None:
        """The user's words, as the engine understood them."""
        self.write(f.UserSaid(item_id=item_id, text=text, media_time_ms=self._now_ms()))

    def heard(self, response_id: str, text: str, *, complete: bool) -> None:
        self.write(
            f.HeardFact(response_id=response_id, text=text, complete=complete, media_time_ms=self._now_ms())
        )

    def deleted(self, item_id: str) -> None:
        self.write(f.ItemDeleted(query_id=item_id))

    def shown(self, frames: Sequence[bytes]) -> None:
        """Pictures went to the engine with one unit."""
        now_ms = self._now_ms()
        self.on_frames(frames, now_ms)
        self.write(f.FramesShown(count=len(frames), media_time_ms=now_ms))

    def engine(self, generation: int, reason: str, engine: str, seed: str | None, gap_ms: int) -> None:
        self.write(
            f.EngineSessionOpened(
                generation=generation,
                reason=reason,
                engine=engine,
                media_time_ms=self._now_ms(),
                seed=seed,
                revision=self.memory.revision,
                gap_ms=gap_ms,
            )
        )


def language_of(asked: str | None) -> str:
    """The language that memory is told in: the client's, if it ships."""
    try:
        telling(asked or DEFAULT_LANGUAGE)
    except PackError:
        return DEFAULT_LANGUAGE
    return asked or DEFAULT_LANGUAGE
