"""A remembered conversation as a source of seeds, and horizons to try rollovers on."""

from __future__ import annotations

from memory.facts import HeardFact, SpokenOpened, UserSaid
from memory.seed import seed_text
from memory.spoken import SpokenMemory
from prompts.native import Horizon, Seed

SEED_TOKENS = 400


def horizon(**changes: object) -> Horizon:
    """Two minutes of a model that hears 12 tokens a second."""
    known: dict[str, object] = {
        "context_tokens": 1440 + 600, "tokens_per_second": 12.0, "tokens_per_frame": 64,
        "prefix_tokens": 100, "seed": Seed.INSTRUCTIONS, "seed_max_tokens": SEED_TOKENS,
    }  # fmt: skip
    return Horizon(**{**known, **changes})  # type: ignore[arg-type]


class Talk:
    """``rollover.Seeds`` over a real memory."""

    def __init__(self, persona: str | None = "You are kind.", seed_tokens: int = SEED_TOKENS) -> None:
        self.memory = SpokenMemory()
        self.seed_tokens = seed_tokens
        self.persona = persona
        self.last_heard = ""
        self.ms = 0
        self.memory.apply(SpokenOpened(family="f", digest="d", language="en", seed_tokens=seed_tokens))

    @property
    def revision(self) -> int:
        return self.memory.revision

    def seed(self) -> str:
        return seed_text(self.memory, self.seed_tokens, self.persona, self.ms)

    def says(self, item: str, text: str) -> None:
        self.memory.apply(UserSaid(item_id=item, text=text, media_time_ms=self.ms))

    def hears(self, response: str, text: str, *, complete: bool = True) -> None:
        self.memory.apply(
            HeardFact(response_id=response, text=text, complete=complete, media_time_ms=self.ms)
        )
        if text:
            self.last_heard = text
