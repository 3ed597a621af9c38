"""The engines behind the replay track: one or several that serve one model alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine_launch.facts import EngineFacts
from orchestrator.engine_address import twin
from orchestrator.engine_setup import Engine, Tell, prepare_engine
from orchestrator.exits import Exit, SetupError
from orchestrator.settings import Settings
from prompts.pack import Pack

_ALIKE = ("model", "tag_ids", "decision_index", "decision_ids", "end_ids")
"""What a session takes from one engine to another: its prompts would mean something else there."""


@dataclass(frozen=True, slots=True)
class Engines:
    """:param each: at least one; :param facts: what holds for all of them"""

    each: tuple[Engine, ...]
    facts: EngineFacts

    @classmethod
    def of(cls, *engines: Engine) -> Engines:
        """:raises SetupError: they do not serve one model alike"""
        return cls(engines, shared_facts([(engine.url, engine.facts) for engine in engines]))

    @property
    def pack(self) -> Pack:
        return self.each[0].pack

    def stop(self) -> None:
        """Stop those that were started here. Blocks for some seconds each."""
        for engine in self.each:
            engine.stop()


def prepare_engines(settings: Settings, tell: Tell) -> Engines:
    """Blocks: seconds for running engines, minutes for one that must be started.

    An engine that does not answer is told of and left out, as long as another one does.

    :raises SetupError: none can serve, or they do not serve one model alike
    """
    prepared: list[Engine] = []
    last: SetupError | None = None
    try:
        for target in settings.engines:
            try:
                prepared.append(prepare_engine(settings.model_copy(update={"engine": target}), tell))
                if (known := twin(prepared[-1].url, [engine.url for engine in prepared[:-1]])) is not None:
                    raise SetupError(
                        f"{target} and {known} are one engine; name it once", "engine_twice", Exit.USAGE
                    )
            except SetupError as error:
                if error.code != "engine_unreachable" or len(settings.engines) == 1:
                    raise
                tell(f"engine: {target}: {error.message}; going on without it")
                last = error
        if not prepared:
            raise last or SetupError("no engine is named", "engine_unreachable", Exit.USAGE)
        return Engines.of(*prepared)
    except BaseException:
        for engine in prepared:
            engine.stop()
        raise


def shared_facts(known: Sequence[tuple[str, EngineFacts]]) -> EngineFacts:
    """What holds for every engine: the smallest limits, the coarsest blocks, what all of them can do.

    :raises SetupError: they differ in what a session takes from one to another
    """
    first_url, first = known[0]
    for url, facts in known[1:]:
        for name in _ALIKE:
            if getattr(facts, name) != getattr(first, name):
                raise SetupError(
                    f"{first_url} and {url} differ in {name} ({getattr(first, name)} and "
                    f"{getattr(facts, name)}); sessions can't go from one to the other",
                    "engines_differ",
                    Exit.USAGE,
                )
    every = [facts for _, facts in known]
    return replace(
        first,
        context_tokens=min(facts.context_tokens for facts in every),
        max_images=min(facts.max_images for facts in every),
        block_tokens=max(facts.block_tokens for facts in every),
        reports_cached=all(facts.reports_cached for facts in every),
        prefix_cache=all(facts.prefix_cache for facts in every),
        constrained=all(facts.constrained for facts in every),
    )


def covers(known: EngineFacts, url: str, facts: EngineFacts) -> None:
    """An engine that comes later must do all that sessions already count on.

    :raises SetupError: what it lacks
    """
    joined = shared_facts([("the other engines", known), (url, facts)])
    shared = ("context_tokens", "max_images", "block_tokens", "prefix_cache", "constrained")
    lacks = [name for name in shared if getattr(joined, name) != getattr(known, name)]
    if lacks:
        raise SetupError(
            f"{url} falls short of the other engines in {', '.join(lacks)}",
            "engine_unfit",
            Exit.MODEL_MISSING,
        )
